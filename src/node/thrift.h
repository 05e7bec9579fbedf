// Chooses the size of a group's window or of a link by the amount of shared memory that this rank
// has in use. The first ones get the best size and later ones get less, so that even a thousand
// groups get shared memory. Released memory does not count.
#pragma once

#include <algorithm>
#include <cstddef>

#include "node/arena.h"

namespace mccl::node {

/// Shared memory that a rank plans to use, in bytes: kGroupBytes for all groups, and
/// kBytesPerNeighbour for the links to each neighbour. It is allocated only when it is needed.
inline constexpr std::size_t kGroupBytes = std::size_t{64} << 20;
inline constexpr std::size_t kBytesPerNeighbour = std::size_t{8} << 20;
/// Maximum number of neighbours for which memory is planned. Additional neighbours share that
/// memory.
inline constexpr std::size_t kMostNeighbours = 512;

/// Address space of an arena, as a multiple of the planned memory: enough for thousands of windows
/// or links of reduced size.
inline constexpr std::size_t kRoomForThrift = 4;

inline std::size_t arena_bytes(std::size_t neighbours) {
  return kRoomForThrift *
         (kGroupBytes + kBytesPerNeighbour * std::min(neighbours, kMostNeighbours));
}

/// Returns `usual` while less than half of the planned memory is in use, usual / 4 while less than
/// all of it is, usual / 16 while less than twice as much is, and usual / 64 beyond that. Never
/// returns less than `least`.
inline std::size_t thrifty(std::size_t usual, std::size_t least, const Arena& arena) {
  const std::size_t taken = arena.taken();
  const std::size_t all = arena.capacity() / kRoomForThrift;
  const int quarterings = taken < all / 2 ? 0 : taken < all ? 1 : taken < 2 * all ? 2 : 3;
  return std::max(least, usual >> (2 * quarterings));
}

}  // namespace mccl::node
