// Which ranks share memory with this one: found by trying, and agreed on by all.
//
// Of a pair the higher rank dials the lower one's local listener and introduces itself: with what
// proves that it knows the key, its arena, and its bell's pipe. The lower one answers in kind. When
// the higher one has its answer, or knows that none will come, it says so by one byte on their
// control connection: so the lower one knows when nobody has to come any more. A rank dials few
// others at a time, and a pair's local connection ends with its answer.
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
  std::vector<int> nodes;  ///< As node::SharedMemory.
};

/// The name of a rank that has no memory to share.
inline constexpr const char* kNoMemory = "-";

struct NeighbourOptions {
  int rank = 0;
  std::string key;                 ///< Of this start of the job.
  std::vector<std::string> names;  ///< Of the ranks' local listeners, or kNoMemory.
  /// With memory to share; null without.
  const node::LocalListener* listener = nullptr;
  node::Arena* arena = nullptr;
  int bell_pipe = -1;
  std::vector<transport::Link*> controls;  ///< By rank; a neighbour reads none of them further.
  Clock::time_point deadline;
  /// What goes on meanwhile: its descriptors, and what it does now and then. It throws what makes
  /// the search vain.
  std::function<void(std::vector<pollfd>&)> watch_beside;
  std::function<void()> advance_beside;
};

/// All ranks call it. Whoever can be reached through a local socket, is the same user, proves the
/// key and can map this rank's memory and have its own mapped is a neighbour; that somebody is none
/// is no error. Throws PeerError, TimeoutError, OutOfDescriptors.
node::Neighbours find_neighbours(const NeighbourOptions& options);

/// All ranks call it, and drop the neighbours that are not of their node.
Neighbourhood agree_on_nodes(const Exchange& exchange, int rank, int size, node::Neighbours found);

/// Nodes from what each rank says of whom it has mapped: on a node, everyone has mapped everyone.
/// Ranks are taken in order, each into the node of the first rank that it fits. `mapped[a]` need
/// not be sorted.
std::vector<int> nodes_from(const std::vector<std::vector<int>>& mapped);

}  // namespace mccl::rendezvous
