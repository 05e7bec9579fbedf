// The data that the host passes to kernels about the ranks whose memory they reach. Each rank has a
// staging area that all other ranks write. The kernels' headers describe the layout and the timing
// of these writes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/arithmetic.h"

namespace mccl::kernels::cuda {

inline constexpr int kMostRanks = 8;
inline constexpr int kMostBlocks = 256;
inline constexpr int kThreads = 512;

/// Largest part in bytes that a rank sends to each other rank in a flagged call. If the call sends
/// sums back, half of it, because the sums take the other half.
inline constexpr std::size_t kMostFlagged = std::size_t{2} << 20;
/// Size in bytes of the area for packed calls, which have one flag per line: data and flags.
inline constexpr std::size_t kPackedArea = std::size_t{4} << 20;
/// Largest data of a packed call in bytes. If the call sends sums back, half of it.
inline constexpr std::size_t kMostPacked = kPackedArea / 128 * 120;
/// Bytes that each rank sends to each other rank in one round of any other call.
inline constexpr std::size_t kRound = std::size_t{8} << 20;

/// Size in bytes of the words through which blocks meet: one line of 64 bytes per block and rank.
inline constexpr std::size_t kFlagBytes = kMostBlocks * kMostRanks * 64;

/// Largest number of windows of a rank: memory that other ranks read and write directly.
inline constexpr std::uint32_t kMostWindows = 1024;
/// A place is a position for other ranks: the number of the window, and the offset in it.
inline constexpr std::uint64_t kNowhere = ~std::uint64_t{0};
MCCL_BOTH std::uint64_t place_in(std::uint64_t window, std::uint64_t offset) {
  return window << 48 | offset;
}
MCCL_BOTH std::uint64_t window_of(std::uint64_t place) { return place >> 48; }
MCCL_BOTH std::uint64_t offset_of(std::uint64_t place) {
  return place & ((std::uint64_t{1} << 48) - 1);
}

/// Offsets in bytes within a rank's staging area.
struct Layout {
  std::size_t flagged;   ///< Two halves, used in turn, with a part per rank: data and flags.
  std::size_t packed;    ///< Likewise, for lines that have one flag each.
  std::size_t received;  ///< Two halves with a part per rank: received data.
  std::size_t results;   ///< Likewise, for sums.
  std::size_t bytes;
};

inline Layout layout_of(int ranks) {
  const std::size_t flagged = 2 * static_cast<std::size_t>(ranks) * 2 * kMostFlagged;
  const std::size_t packed = 2 * static_cast<std::size_t>(ranks) * kPackedArea;
  const std::size_t round = 2 * static_cast<std::size_t>(ranks) * kRound;
  const std::size_t received = kFlagBytes + flagged + packed;
  return {kFlagBytes, kFlagBytes + flagged, received, received + round, received + 2 * round};
}

/// Per-block counters in device memory. Kernels do the counting, so that a graph can run a kernel
/// again. Between kernels, the counters of all blocks are equal.
struct Counters {
  std::uint32_t meetings[kMostBlocks];  ///< Meetings so far with the same block of other ranks.
  std::uint32_t rounds[kMostBlocks];    ///< Rounds of staged calls so far.
  std::uint32_t flagged[kMostBlocks];   ///< Flagged and packed calls so far.
};

/// Lies in pinned memory. Waiting threads check it regularly.
struct Alarm {
  std::uint32_t stop;  ///< Set by the host to end running kernels.
  std::uint32_t late;  ///< Set by a kernel that timed out: 1 plus the rank that it waited for.
};

struct Fabric {
  int rank;
  int ranks;
  std::byte* areas[kMostRanks];  ///< Addresses that are valid on this rank.
  Layout layout;
  Counters* counters;
  volatile Alarm* alarm;
  std::uint64_t patience_ns;
  /// Table in device memory with kMostWindows addresses per rank, which are valid on this rank.
  std::byte* const* windows;
};

enum class Shape : int { all_reduce, reduce_scatter, all_gather, all_to_all, broadcast };

/// The arguments of one call.
struct Task {
  const std::byte* in;
  std::byte* out;
  /// all_reduce and broadcast: bytes of the whole buffer. Other calls: bytes of one part.
  std::size_t bytes;
  float divisor;
  int root;
  /// Places of `in` and `out` for other ranks; kNowhere if they do not reach it.
  std::uint64_t in_place = kNowhere;
  std::uint64_t out_place = kNowhere;
};

}  // namespace mccl::kernels::cuda
