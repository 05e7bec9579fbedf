// Finds the ranks that share memory with this one by trying, and makes all ranks agree on the
// result.
//
// The higher rank of a pair dials the lower one's local listener and introduces itself: with a
// proof that it knows the key, its arena, and its bell's pipe. The lower one answers with the same.
// When the higher one has its answer, or knows that none will arrive, it sends one byte on their
// control connection. So the lower one knows when no more introductions are due. A rank dials few
// others at a time, and a pair's local connection ends with the answer.
#pragma once

#include <poll.h>

#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "node/local_socket.h"
#include "node/neighbour.h"
#include "rendezvous/exchange.h"
#include "transport/link.h"

namespace mccl::rendezvous {

struct Neighbourhood {
  node::Neighbours neighbours;
  std::vector<int> nodes;  ///< See node::SharedMemory.
};

/// Name published by a rank that has no memory to share.
inline constexpr const char* kNoMemory = "-";

struct NeighbourOptions {
  int rank = 0;
  std::string key;                 ///< Key of this start of the job.
  std::vector<std::string> names;  ///< Names of the ranks' local listeners, or kNoMemory.
  /// Null if this rank has no memory to share.
  const node::LocalListener* listener = nullptr;
  node::Arena* arena = nullptr;
  int bell_pipe = -1;
  std::vector<transport::Link*> controls;  ///< Indexed by rank. The search reads one byte of each.
  Clock::time_point deadline;
  /// Concurrent work: appends descriptors to poll, and is called repeatedly. It throws to end the
  /// search.
  std::function<void(std::vector<pollfd>&)> watch_beside;
  std::function<void()> advance_beside;
};

/// Must be called by all ranks. A rank is a neighbour if it can be reached through a local socket,
/// runs as the same user, proves the key, and both ranks can map each other's memory. A rank that
/// is not a neighbour is no error. Throws PeerError, TimeoutError, OutOfDescriptors.
node::Neighbours find_neighbours(const NeighbourOptions& options);

/// Must be called by all ranks. Drops the neighbours that are not of this rank's node.
Neighbourhood agree_on_nodes(const Exchange& exchange, int rank, int size, node::Neighbours found);

/// Computes nodes from the ranks that each rank has mapped; all ranks of a node must have mapped
/// each other. Ranks are processed in order, and each joins the node of the first rank that it
/// fits. `mapped[a]` need not be sorted.
std::vector<int> nodes_from(const std::vector<std::vector<int>>& mapped);

}  // namespace mccl::rendezvous
