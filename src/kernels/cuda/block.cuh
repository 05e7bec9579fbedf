// Building blocks of all kernels: lines of 16 bytes, sums, timeouts and the barrier.
//
// The barrier is meet(). The threads of a block synchronise. Then thread r writes the number of the
// barrier to the word for (block, this rank) in rank r's area. This is a release store, which
// covers all writes of the block. With acquire loads, the thread then waits until rank r has
// written that number to the word for (block, r) in this rank's area. The numbers of barriers
// only grow, and are compared by their difference, so they may wrap around. If a wait times out or
// the host stops the kernel, the thread continues, and the host reports that the results are
// invalid.
#pragma once

#include "kernels/cuda/arithmetic.h"
#include "kernels/cuda/fabric.h"
#include "kernels/cuda/ptx.cuh"

namespace mccl::kernels::cuda {
namespace {

/// Limits the time of a wait. Checks the clock and the alarm once every 4096 calls of lasts().
class Patience {
 public:
  __device__ __forceinline__ explicit Patience(const Fabric& fabric) : fabric_(fabric) {}
  /// True if the caller may continue to wait for `rank`.
  __device__ __forceinline__ bool lasts(int rank) {
    if (++looks_ % 4096 != 0) return true;
    const std::uint64_t now = now_ns();
    if (since_ == 0) since_ = now;
    if (fabric_.alarm->stop != 0 || fabric_.alarm->late != 0) return false;
    if (now - since_ < fabric_.patience_ns) return true;
    fabric_.alarm->late = static_cast<std::uint32_t>(rank) + 1;
    return false;
  }

 private:
  const Fabric& fabric_;
  std::uint32_t looks_ = 0;
  std::uint64_t since_ = 0;
};

__device__ __forceinline__ std::uint32_t* word_of(const Fabric& fabric, int area, int block,
                                                  int rank) {
  const std::size_t line = static_cast<std::size_t>(block) * kMostRanks + rank;
  return reinterpret_cast<std::uint32_t*>(fabric.areas[area] + line * 64);
}

__device__ __forceinline__ void meet(const Fabric& fabric, std::uint32_t meeting) {
  __syncthreads();
  const int peer = static_cast<int>(threadIdx.x);
  if (peer < fabric.ranks && peer != fabric.rank) {
    store_release(word_of(fabric, peer, blockIdx.x, fabric.rank), meeting);
    const std::uint32_t* const word = word_of(fabric, fabric.rank, blockIdx.x, peer);
    std::uint32_t seen;
    Patience patience(fabric);
    do {
      seen = load_acquire(word);
    } while (static_cast<std::int32_t>(seen - meeting) < 0 && patience.lasts(peer));
  }
  __syncthreads();
}

/// Stores the final count at the end of a kernel. Each block has its own counters, so that blocks
/// need not synchronise. The counters of blocks that this kernel did not launch are updated too,
/// because a later kernel may launch these blocks.
template <typename Counter>
__device__ __forceinline__ void leave(Counter& counter, std::uint32_t count) {
  __syncthreads();  // waits until all threads have read the counter
  for (unsigned block = blockIdx.x + threadIdx.x * gridDim.x; block < kMostBlocks;
       block += gridDim.x * blockDim.x) {
    counter[block] = count;
  }
}

template <typename Counter>
__device__ __forceinline__ std::uint32_t count_of(const Counter& counter) {
  return *const_cast<const volatile std::uint32_t*>(&counter[blockIdx.x]);
}

/// Loads `count` bytes of any alignment, at most 16. The rest of the line is zero. Not inlined,
/// since few threads need it.
__device__ __noinline__ Line load_bytes(const std::byte* from, int count) {
  Line line{};
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    const std::uint32_t byte = i < count ? static_cast<std::uint32_t>(from[i]) : 0;
    line.words[i / 4] |= byte << i % 4 * 8;
  }
  return line;
}

__device__ __noinline__ void store_bytes(std::byte* to, int count, Line line) {
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    if (i < count) to[i] = static_cast<std::byte>(line.words[i / 4] >> i % 4 * 8);
  }
}

/// Number of bytes, at most 16, between offset `at` and the end of a buffer of `bytes` bytes.
__device__ __forceinline__ int bytes_from(std::size_t at, std::size_t bytes) {
  return at >= bytes ? 0 : bytes - at < 16 ? static_cast<int>(bytes - at) : 16;
}

/// Loads 16 bytes at offset `at` of a buffer of `bytes` bytes, with any alignment. Bytes past the
/// end are zero.
__device__ __forceinline__ Line load(const std::byte* from, std::size_t at, std::size_t bytes) {
  const std::byte* const place = from + at;
  if (at + 16 <= bytes && (reinterpret_cast<std::uintptr_t>(place) & 15) == 0) {
    return *reinterpret_cast<const Line*>(place);
  }
  return load_bytes(place, bytes_from(at, bytes));
}

__device__ __forceinline__ void store(std::byte* to, std::size_t at, std::size_t bytes,
                                      const Line& line) {
  std::byte* const place = to + at;
  if (at + 16 <= bytes && (reinterpret_cast<std::uintptr_t>(place) & 15) == 0) {
    *reinterpret_cast<Line*>(place) = line;
  } else {
    store_bytes(place, bytes_from(at, bytes), line);
  }
}

/// Lines of one thread, `stride` bytes apart, whose loads or stores are in flight together.
template <int kLines>
struct Batch {
  Line lines[kLines];

  __device__ __forceinline__ void load_from(const std::byte* from, std::size_t at,
                                            std::size_t stride, std::size_t bytes) {
    if (is_whole(from, at, stride, bytes)) {
#pragma unroll
      for (int i = 0; i < kLines; ++i) {
        lines[i] = *reinterpret_cast<const Line*>(from + at + i * stride);
      }
      return;
    }
#pragma unroll
    for (int i = 0; i < kLines; ++i) lines[i] = load(from, at + i * stride, bytes);
  }

  __device__ __forceinline__ void store_to(std::byte* to, std::size_t at, std::size_t stride,
                                           std::size_t bytes) const {
    if (is_whole(to, at, stride, bytes)) {
#pragma unroll
      for (int i = 0; i < kLines; ++i) {
        *reinterpret_cast<Line*>(to + at + i * stride) = lines[i];
      }
      return;
    }
#pragma unroll
    for (int i = 0; i < kLines; ++i) {
      if (at + i * stride < bytes) store(to, at + i * stride, bytes, lines[i]);
    }
  }

 private:
  __device__ __forceinline__ static bool is_whole(const std::byte* memory, std::size_t at,
                                                  std::size_t stride, std::size_t bytes) {
    return at + (kLines - 1) * stride + 16 <= bytes &&
           (reinterpret_cast<std::uintptr_t>(memory) & 15) == 0;
  }
};

/// Sums lines whose elements have type T. Kernels that only move data do not use it.
template <typename T>
struct LineSum {
  Wide<T> wide;
  __device__ __forceinline__ void set(const Line& line) {
    cuda::set(wide, reinterpret_cast<const typename T::Bits*>(&line));
  }
  __device__ __forceinline__ void add(const Line& line) {
    cuda::add(wide, reinterpret_cast<const typename T::Bits*>(&line));
  }
  __device__ __forceinline__ Line round(float divisor) const {
    Line line;
    round_to(reinterpret_cast<typename T::Bits*>(&line), wide, divisor);
    return line;
  }
};

/// Sums the lines of all ranks in rank order. `own` is the line of this rank. `lines` is indexed by
/// rank and holds the lines of the other ranks.
template <typename T, int kRanks>
__device__ __forceinline__ LineSum<T> sum_of_ranks(const Fabric& fabric, const Line& own,
                                                   const Line (&lines)[kRanks]) {
  LineSum<T> sum;
#pragma unroll
  for (int peer = 0; peer < kRanks; ++peer) {
    if (peer >= fabric.ranks) break;
    const Line line = peer == fabric.rank ? own : lines[peer];
    peer == 0 ? sum.set(line) : sum.add(line);
  }
  return sum;
}

/// The lines of a buffer are distributed over the threads of the grid: a thread's first line begins
/// at first_line(), and its next lines follow at distances of all_lines() bytes.
__device__ __forceinline__ std::size_t first_line() {
  return std::size_t{16} * (blockIdx.x * blockDim.x + threadIdx.x);
}
__device__ __forceinline__ std::size_t all_lines() {
  return std::size_t{16} * gridDim.x * blockDim.x;
}

/// Calls act(step, peer) for each rank but this one. Begins with the next rank, so that the ranks
/// do not all write to one rank at the same time. Unrolled, so `step` can index registers.
template <typename Act>
__device__ __forceinline__ void for_others(const Fabric& fabric, const Act& act) {
#pragma unroll
  for (int step = 1; step < kMostRanks; ++step) {
    if (step >= fabric.ranks) break;
    const int peer = fabric.rank + step;
    act(step, peer < fabric.ranks ? peer : peer - fabric.ranks);
  }
}

/// Calls act(peer) in rank order for each other rank for which is_wanted(peer) is true. Unrolled,
/// so `peer` can index registers.
template <typename Wanted, typename Act>
__device__ __forceinline__ void for_wanted(const Fabric& fabric, const Wanted& is_wanted,
                                           const Act& act) {
#pragma unroll
  for (int peer = 0; peer < kMostRanks; ++peer) {
    if (peer >= fabric.ranks) break;
    if (peer != fabric.rank && is_wanted(peer)) act(peer);
  }
}

/// Cuts a buffer into `count` parts at line boundaries. Parts at the end may be shorter or empty.
struct LineParts {
  __device__ __forceinline__ LineParts(std::size_t bytes, int count)
      : bytes(bytes), part(((bytes + 15) / 16 + count - 1) / count * 16) {}
  __device__ __forceinline__ std::size_t size_of(int index) const {
    const std::size_t begin = part * index;
    return begin >= bytes ? 0 : (bytes - begin < part ? bytes - begin : part);
  }

  std::size_t bytes;
  std::size_t part;
};

__device__ __forceinline__ std::byte* half_of(const Fabric& fabric, int area, std::size_t place,
                                              std::size_t part, std::uint32_t half, int rank) {
  return fabric.areas[area] + place + (half * fabric.ranks + rank) * part;
}

}  // namespace
}  // namespace mccl::kernels::cuda
