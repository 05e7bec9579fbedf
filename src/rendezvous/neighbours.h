// Which ranks share memory with this one: found by trying, and agreed on by all.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "mccl/store.h"
#include "transport/shm/arena.h"
#include "transport/shm/bell.h"

namespace mccl::rendezvous {

/// A rank whose memory this one has mapped, and the other way around.
struct Neighbour {
  transport::shm::PeerArena arena;
  transport::shm::Descriptor bell_pipe;

  transport::shm::Bell bell() const { return {arena.header(), bell_pipe.get()}; }
};

struct Neighbourhood {
  std::map<int, Neighbour> neighbours;  ///< By rank of the job.
  /// By rank of the job, equal on all ranks: ranks of one number share memory, each with each.
  /// Empty when no two do.
  std::vector<int> nodes;
};

struct NeighbourOptions {
  int rank = 0;
  int size = 1;
  std::shared_ptr<Store> store;
  std::string job_key;
  transport::shm::Arena* arena = nullptr;  ///< Null: this rank has no memory to share.
  int bell_pipe = -1;
  Clock::time_point deadline;
};

/// All ranks call it. Whoever can be reached through a local socket, is the same user, proves the
/// job's key and can map this rank's memory and have its own mapped is a neighbour. Throws
/// TimeoutError and the store's errors; that somebody is no neighbour is no error.
Neighbourhood meet_neighbours(const NeighbourOptions& options);

/// Nodes from what each rank says of whom it has mapped: on a node, everyone has mapped everyone.
/// Ranks are taken in order, each into the node of the first rank that it fits. `mapped[a]` need
/// not be sorted.
std::vector<int> nodes_from(const std::vector<std::vector<int>>& mapped);

}  // namespace mccl::rendezvous
