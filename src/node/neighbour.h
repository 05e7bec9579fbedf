// The ranks with which a rank shares memory.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "base/rank.h"
#include "node/arena.h"

namespace mccl::node {

/// A rank with which this rank shares memory: each of the two has mapped the other's arena
/// (arena.h).
struct Neighbour {
  PeerArena arena;
  Descriptor bell_pipe;

  Bell bell() const { return {arena.header(), bell_pipe.get()}; }
};

using Neighbours = std::map<WorldRank, Neighbour>;

/// The arenas that a rank shares with its node.
struct SharedMemory {
  std::shared_ptr<Arena> arena;  ///< This rank's arena; null if it shares no memory.
  Neighbours neighbours;
  /// Node number of each rank of the job, equal on all ranks. Any two ranks with the same number
  /// share memory. Empty if no two ranks share memory.
  std::vector<int> nodes;

  /// Returns the neighbour `rank`; null if `rank` does not share memory with this process.
  const Neighbour* neighbour(WorldRank rank) const {
    const auto found = neighbours.find(rank);
    return found == neighbours.end() ? nullptr : &found->second;
  }
};

}  // namespace mccl::node
