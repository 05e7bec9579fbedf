// How much shared memory a group's window or a link takes, by how much this rank has handed out:
// the first ones get what serves them best, and the more there are the less each takes, so that a
// thousand groups still meet in memory. What is given back counts no more.
#pragma once

#include <algorithm>
#include <cstddef>

#include "node/arena.h"

namespace mccl::node {

/// What a rank hands out before it becomes thrifty: for groups, and for links to each neighbour.
/// Memory is taken only as it is handed out.
inline constexpr std::size_t kGroupBytes = std::size_t{64} << 20;
inline constexpr std::size_t kBytesPerNeighbour = std::size_t{8} << 20;
/// Neighbours beyond this share what these have.
inline constexpr std::size_t kMostNeighbours = 512;

/// Address space for an arena is so many times that: the thrifty sizes have room for thousands.
inline constexpr std::size_t kRoomForThrift = 4;

inline std::size_t arena_bytes(std::size_t neighbours) {
  return kRoomForThrift *
         (kGroupBytes + kBytesPerNeighbour * std::min(neighbours, kMostNeighbours));
}

/// `usual` where less than half of what is usual is handed out; a quarter up to all of it, a
/// sixteenth up to twice that, a sixty-fourth beyond; never less than `least`.
inline std::size_t thrifty(std::size_t usual, std::size_t least, const Arena& arena) {
  const std::size_t taken = arena.taken();
  const std::size_t all = arena.capacity() / kRoomForThrift;
  const int quarterings = taken < all / 2 ? 0 : taken < all ? 1 : taken < 2 * all ? 2 : 3;
  return std::max(least, usual >> (2 * quarterings));
}

}  // namespace mccl::node
