// The other processes of this one's node.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "base/rank.h"
#include "node/arena.h"
#include "node/bell.h"

namespace mccl::node {

/// A rank whose memory this one has mapped, and the other way around.
struct Neighbour {
  PeerArena arena;
  Descriptor bell_pipe;

  Bell bell() const { return {arena.header(), bell_pipe.get()}; }
};

/// Maps a range of the neighbour's and lets go of it, which it counts on. Throws CorruptionError
/// for a place that is none. Where it cannot be mapped here, the range stays taken.
void let_go_of(const Neighbour& neighbour, const RangePlace& place);

using Neighbours = std::map<WorldRank, Neighbour>;

/// What a rank shares with its node.
struct SharedMemory {
  std::shared_ptr<Arena> arena;  ///< This rank's own; null when nothing is shared.
  Neighbours neighbours;
  /// By rank of the job, equal on all ranks: ranks of one number share memory, each with each.
  /// Empty when no two do.
  std::vector<int> nodes;

  /// Null when the rank does not share memory with this one.
  const Neighbour* neighbour(WorldRank rank) const {
    const auto found = neighbours.find(rank);
    return found == neighbours.end() ? nullptr : &found->second;
  }
};

}  // namespace mccl::node
