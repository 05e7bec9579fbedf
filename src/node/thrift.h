// Decides the size of a group's window or of a link, depending on how much shared memory this rank
// has handed out. The first ones get the best size, later ones get less, so that a thousand groups
// still find shared memory. Memory that has been returned does not count.
#pragma once

#include <algorithm>
#include <cstddef>

#include "node/arena.h"

namespace mccl::node {

/// Memory that a rank hands out before it reduces sizes: for all groups, and for links to each
/// neighbour. It is allocated only when it is handed out.
inline constexpr std::size_t kGroupBytes = std::size_t{64} << 20;
inline constexpr std::size_t kBytesPerNeighbour = std::size_t{8} << 20;
/// Number of neighbours for which memory is reserved. Additional neighbours share that memory.
inline constexpr std::size_t kMostNeighbours = 512;

/// Address space of an arena as a multiple of that memory: enough for thousands of the reduced
/// sizes.
inline constexpr std::size_t kRoomForThrift = 4;

inline std::size_t arena_bytes(std::size_t neighbours) {
  return kRoomForThrift *
         (kGroupBytes + kBytesPerNeighbour * std::min(neighbours, kMostNeighbours));
}

/// Returns `usual` while less than half of that memory is handed out, a quarter of it up to all, a
/// sixteenth up to twice that, and a sixty-fourth beyond. Never returns less than `least`.
inline std::size_t thrifty(std::size_t usual, std::size_t least, const Arena& arena) {
  const std::size_t taken = arena.taken();
  const std::size_t all = arena.capacity() / kRoomForThrift;
  const int quarterings = taken < all / 2 ? 0 : taken < all ? 1 : taken < 2 * all ? 2 : 3;
  return std::max(least, usual >> (2 * quarterings));
}

}  // namespace mccl::node
