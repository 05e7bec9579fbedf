// Arguments that the host passes to the kernels: the ranks, their memory and the call. Each rank
// has a staging area that all other ranks write to. The kernels' headers describe the layout and
// the timing of these writes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/arithmetic.h"

namespace mccl::kernels::cuda {

inline constexpr int kMostRanks = 8;
inline constexpr int kMostBlocks = 256;
inline constexpr int kThreads = 512;

/// Maximum size in bytes of the data that a rank sends to each other rank in a flagged call
/// (flagged.cuh). If the call sends sums back, the limit is half of this, because the sums take the
/// other half.
inline constexpr std::size_t kMostFlagged = std::size_t{2} << 20;
/// Size in bytes of the data and flags of a packed call that one rank sends to another. Packed
/// calls (packed.cuh) have one flag per line.
inline constexpr std::size_t kPackedArea = std::size_t{4} << 20;
/// Maximum number of data bytes that one rank sends to another in a packed call: kPackedArea
/// without the flags, which take 8 bytes of each line of 128. If the call sends sums back, the
/// limit is half of this.
inline constexpr std::size_t kMostPacked = kPackedArea / 128 * 120;
/// Maximum number of bytes that each rank sends to each other rank in one round of a call that is
/// neither flagged nor packed.
inline constexpr std::size_t kRound = std::size_t{8} << 20;

/// Number of bytes that a rank can send in the time that one barrier takes: 4 us at 330 GB/s (H200
/// GPUs).
inline constexpr std::size_t kSentInBarrier = std::size_t{1300} << 10;
/// The root of a short broadcast sends the whole data to each rank if that takes at most this
/// number of bytes in total. Otherwise it sends each rank a part, which the rank forwards.
inline constexpr std::size_t kMostSentWhole = std::size_t{64} << 10;
/// Maximum size in bytes of a flagged broadcast. The second half of the kMostFlagged bytes is for
/// forwarded parts, except the last 16 bytes, which hold the tokens (broadcast.cuh).
inline constexpr std::size_t kMostFlaggedBroadcast = kMostFlagged / 2 - 16;

/// Size in bytes of the area for the barrier meet(): 64 bytes per block and rank.
inline constexpr std::size_t kFlagBytes = kMostBlocks * kMostRanks * 64;

/// Maximum number of windows of a rank. A window is memory that other ranks read directly.
inline constexpr std::uint32_t kMostWindows = 1024;
/// A place describes a position in a rank's memory to other ranks: the number of the window, and
/// the offset in it. kNowhere describes memory outside all windows.
inline constexpr std::uint64_t kNowhere = ~std::uint64_t{0};
MCCL_BOTH std::uint64_t place_in(std::uint64_t window, std::uint64_t offset) {
  return window << 48 | offset;
}
MCCL_BOTH std::uint64_t window_of(std::uint64_t place) { return place >> 48; }
MCCL_BOTH std::uint64_t offset_of(std::uint64_t place) {
  return place & ((std::uint64_t{1} << 48) - 1);
}

/// Offsets in bytes within a rank's staging area.
struct StagingLayout {
  /// Data and flags of flagged calls. Successive calls alternate between the two halves of this
  /// area; each half has one part per rank. The next three areas are divided in the same way.
  std::size_t flagged;
  std::size_t packed;    ///< Data and flags of packed calls.
  std::size_t received;  ///< Received data of calls that are neither flagged nor packed.
  std::size_t results;   ///< Received sums of calls that are neither flagged nor packed.
  std::size_t bytes;
};

inline StagingLayout layout_of(int ranks) {
  const std::size_t flagged = 2 * static_cast<std::size_t>(ranks) * 2 * kMostFlagged;
  const std::size_t packed = 2 * static_cast<std::size_t>(ranks) * kPackedArea;
  const std::size_t round = 2 * static_cast<std::size_t>(ranks) * kRound;
  const std::size_t received = kFlagBytes + flagged + packed;
  return {kFlagBytes, kFlagBytes + flagged, received, received + round, received + 2 * round};
}

/// Per-block counters in device memory. The kernels increment them, so that a CUDA graph can run a
/// kernel repeatedly. Between kernels, the counters of all blocks are equal.
struct Counters {
  /// Number of barriers so far. In a barrier, a block waits for the blocks with its number on the
  /// other ranks.
  std::uint32_t meetings[kMostBlocks];
  std::uint32_t rounds[kMostBlocks];   ///< Rounds so far of calls neither flagged nor packed.
  std::uint32_t flagged[kMostBlocks];  ///< Number of flagged and packed calls so far.
};

/// Flags in pinned memory through which the host or a kernel ends the waits of all kernels of a
/// Fabric. Waiting threads check the flags regularly.
struct Alarm {
  std::uint32_t stop;  ///< Set by the host to end running kernels.
  /// 1 plus the rank for which a kernel waited until it timed out; 0 if no kernel did.
  std::uint32_t late;
};

struct Fabric {
  int rank;
  int ranks;
  std::byte* areas[kMostRanks];  ///< Staging area of each rank, at an address valid on this rank.
  StagingLayout layout;
  Counters* counters;
  volatile Alarm* alarm;
  /// Maximum time that a thread waits for another rank.
  std::uint64_t patience_ns;
  /// Table in device memory with kMostWindows addresses per rank, which are valid on this rank.
  std::byte* const* windows;
};

enum class Shape : int { all_reduce, reduce_scatter, all_gather, all_to_all };

/// The arguments of one call.
struct KernelArguments {
  const std::byte* in;
  std::byte* out;
  /// all_reduce and broadcast: bytes of the whole buffer. Other calls: bytes of one rank's part.
  std::size_t bytes;
  float divisor;
  int root;
  /// Place of `in`; kNowhere for memory that other ranks cannot reach.
  std::uint64_t in_place = kNowhere;
};

}  // namespace mccl::kernels::cuda
