// Finds out by trial which ranks can share memory with this rank, and makes all ranks agree on the
// result.
//
// The higher rank of a pair dials the lower one's local listener and introduces itself: it sends
// the descriptors of its arena and of the pipe that wakes it, and a proof that it knows the key.
// The lower rank answers with its own introduction. Once the higher rank has the answer, or knows
// that none will arrive, it sends one byte on the pair's control connection. After this byte, the
// lower rank expects no introduction from the higher rank any more. A rank dials only a few ranks
// at a time. The local connection of a pair is closed after the answer.
#pragma once

#include <poll.h>

#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "node/local_socket.h"
#include "node/neighbour.h"
#include "rendezvous/connections/candidates.h"
#include "rendezvous/store/exchange.h"

namespace mccl::rendezvous {

/// Name published by a rank that has no memory to share.
inline constexpr const char* kNoMemory = "-";

struct NeighbourOptions {
  int rank = 0;
  SecretBytes key;                 ///< Key of this run of the job.
  std::vector<std::string> names;  ///< Names of the ranks' local listeners, or kNoMemory, by rank.
  /// Null if this rank has no memory to share.
  const node::LocalListener* listener = nullptr;
  node::Arena* arena = nullptr;
  int bell_pipe = -1;
  /// Control connections, indexed by rank. The search sends or reads one byte on each.
  std::vector<transport::Link*> controls;
  Clock::time_point deadline;
  /// Appends the descriptors that advance_beside() serves.
  std::function<void(std::vector<pollfd>&)> watch_beside;
  /// Does other work of the caller during the search; called repeatedly. An exception ends the
  /// search.
  std::function<void()> advance_beside;
};

/// Finds the neighbours of this rank. Must be called by all ranks. A rank is a neighbour if it can
/// be reached through a local socket, runs as the same user, proves that it knows the key, and if
/// both ranks can map each other's memory. It is no error if a rank is not a neighbour. Throws
/// PeerError if a control connection fails, TimeoutError at the deadline, or OutOfDescriptors.
node::Neighbours find_neighbours(const NeighbourOptions& options);

/// Makes all ranks agree on the nodes, each of which is a set of ranks that share memory. Drops
/// those neighbours in `found` that are not on this rank's node. Must be called by all ranks. The
/// caller must set the arena of the result, which is null.
node::SharedMemory agree_on_nodes(const Exchange& exchange, int rank, int size,
                                  node::Neighbours found);

/// Warns about ranks that are on the host of `rank`, but share no memory with it. `endpoints` is
/// indexed by rank.
void warn_of_missing_neighbours(const node::SharedMemory& found, int rank,
                                const std::vector<Endpoint>& endpoints, const Log& log);

/// Returns the node number of each rank; empty if no two ranks share a node. All ranks of a node
/// must have mapped the memory of each other. Ranks are processed in order, and each joins the
/// first node that it fits. `mapped[a]` lists the ranks whose memory rank a has mapped, in any
/// order.
std::vector<int> nodes_from(const std::vector<std::vector<int>>& mapped);

}  // namespace mccl::rendezvous
