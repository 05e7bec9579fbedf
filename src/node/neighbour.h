// The ranks with which a rank shares memory.
#pragma once

#include <poll.h>

#include <cstddef>
#include <map>
#include <memory>
#include <vector>

#include "base/rank.h"
#include "node/arena.h"
#include "node/peer_memory.h"

namespace mccl::node {

/// A rank with which this rank shares memory: each of the two has mapped the other's arena
/// (arena.h).
struct Neighbour {
  PeerArena arena;
  Descriptor bell_pipe;
  /// Refers to the rank's process (pidfd_open(2)). Invalid if the system offers no such descriptor,
  /// or if the process is in a PID namespace that this process cannot see.
  Descriptor process = {};
  pid_t pid = 0;  ///< Number of that process; meaningful only if `process` is valid.

  /// True if the rank's process is known to have ended.
  bool has_ended() const {
    pollfd entry = {process.get(), POLLIN, 0};
    return process && ::poll(&entry, 1, 0) == 1 && (entry.revents & POLLIN) != 0;
  }
  Bell bell() const { return {arena.header(), bell_pipe.get()}; }
  PeerMemory memory() const { return {pid, process.get(), arena.header()}; }
};

/// Number of descriptors that a rank holds for each neighbour.
#ifdef __linux__
inline constexpr std::size_t kNeighbourDescriptors = 3;
#else
inline constexpr std::size_t kNeighbourDescriptors = 2;
#endif

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
