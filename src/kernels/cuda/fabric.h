// What a kernel knows of the ranks whose memory it reaches, as the host fills it in. Each rank has
// a staging area that all others write; who writes where, and when it may, is told in
// collectives.cu.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/arithmetic.h"

namespace mccl::kernels::cuda {

inline constexpr int kMostRanks = 8;
inline constexpr int kMostBlocks = 256;
inline constexpr int kThreads = 512;

/// Of a call that travels with its flags, bytes of data that a rank gives another. Of one that has
/// sums to send back, half of that, so that these have the other half.
inline constexpr std::size_t kMostFlagged = std::size_t{2} << 20;
/// The same of one whose flags are one for each line: data and flags.
inline constexpr std::size_t kPackedArea = std::size_t{4} << 20;
/// Data of a packed call; of one that has sums to send back, half of that.
inline constexpr std::size_t kMostPacked = kPackedArea / 128 * 120;
/// Bytes that each rank gives another in one round of any other call.
inline constexpr std::size_t kRound = std::size_t{8} << 20;

/// Words that blocks tell each other by, a line for each block and rank.
inline constexpr std::size_t kFlagBytes = kMostBlocks * kMostRanks * 64;

/// Windows of a rank that others reach: memory that they read and write by themselves.
inline constexpr std::uint32_t kMostWindows = 1024;
/// What a rank tells of where its data lie: in which of its windows, and how far in.
inline constexpr std::uint64_t kNowhere = ~std::uint64_t{0};
MCCL_BOTH std::uint64_t place_in(std::uint64_t window, std::uint64_t offset) {
  return window << 48 | offset;
}
MCCL_BOTH std::uint64_t window_of(std::uint64_t place) { return place >> 48; }
MCCL_BOTH std::uint64_t offset_of(std::uint64_t place) {
  return place & ((std::uint64_t{1} << 48) - 1);
}

/// Where things lie in a rank's staging area.
struct Layout {
  std::size_t flagged;   ///< Two halves, used in turn, of a part for each rank: data and flags.
  std::size_t packed;    ///< The same, of lines that have a flag each.
  std::size_t received;  ///< Two halves of a part for each rank: what they give.
  std::size_t results;   ///< The same for sums.
  std::size_t bytes;
};

inline Layout layout_of(int ranks) {
  const std::size_t flagged = 2 * static_cast<std::size_t>(ranks) * 2 * kMostFlagged;
  const std::size_t packed = 2 * static_cast<std::size_t>(ranks) * kPackedArea;
  const std::size_t round = 2 * static_cast<std::size_t>(ranks) * kRound;
  const std::size_t received = kFlagBytes + flagged + packed;
  return {kFlagBytes, kFlagBytes + flagged, received, received + round, received + 2 * round};
}

/// Counters of each block in the device's own memory: kernels count, so that a graph may run one
/// again. Between kernels those of all blocks are alike.
struct Counters {
  std::uint32_t meetings[kMostBlocks];  ///< With its like of other ranks, so far.
  std::uint32_t rounds[kMostBlocks];    ///< Of calls in rounds, so far.
  std::uint32_t flagged[kMostBlocks];   ///< Calls that travelled with flags, so far.
};

/// In pinned memory. What waits looks there now and then.
struct Alarm {
  std::uint32_t stop;  ///< The host ends what runs.
  std::uint32_t late;  ///< One more than the rank that a kernel has waited for in vain.
};

struct Fabric {
  int rank;
  int ranks;
  std::byte* areas[kMostRanks];  ///< As this rank reaches them.
  Layout layout;
  Counters* counters;
  volatile Alarm* alarm;
  std::uint64_t patience_ns;
  /// In the device's own memory: kMostWindows of each rank, as this one reaches them.
  std::byte* const* windows;
};

enum class Shape : int { all_reduce, reduce_scatter, all_gather, all_to_all, broadcast };

/// Of bytes: `part` is what a rank gives another, or sums.
struct Task {
  const std::byte* in;
  std::byte* out;
  std::size_t bytes;  ///< Of the whole: what a sum, or a part of each rank, is.
  float divisor;
  int root;
  std::uint64_t in_place = kNowhere;  ///< Of `in` and `out`, for the others, where they reach it.
  std::uint64_t out_place = kNowhere;
};

}  // namespace mccl::kernels::cuda
