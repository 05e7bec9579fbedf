// Building blocks of all kernels: lines of 16 bytes, sums, timeouts and the barrier.
//
// The barrier is meet(). The threads of a block synchronise. Then thread r writes the number of the
// barrier to the word for (block, this rank) in rank r's area. This is a release store, which
// covers all writes of the block. With acquire loads, the thread then waits until rank r has
// written that number to the word for (block, r) in this rank's area. Numbers only grow, and are
// compared by their difference, so they may wrap around. A thread that times out or is told to stop
// continues, and the host reports that the results are invalid.
#pragma once

#include "kernels/cuda/arithmetic.h"
#include "kernels/cuda/fabric.h"

namespace mccl::kernels::cuda {
namespace {

struct alignas(16) Line {
  std::uint32_t words[4];
};

__device__ __forceinline__ std::uint64_t now_ns() {
  std::uint64_t time;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(time));
  return time;
}

/// Decides whether to continue waiting for `rank`. Checks the clock and the alarm once every 4096
/// calls.
class Patience {
 public:
  __device__ __forceinline__ explicit Patience(const Fabric& fabric, int rank)
      : fabric_(fabric), rank_(rank) {}
  __device__ __forceinline__ bool lasts() {
    if (++looks_ % 4096 != 0) return true;
    const std::uint64_t now = now_ns();
    if (since_ == 0) since_ = now;
    if (fabric_.alarm->stop != 0 || fabric_.alarm->late != 0) return false;
    if (now - since_ < fabric_.patience_ns) return true;
    fabric_.alarm->late = static_cast<std::uint32_t>(rank_) + 1;
    return false;
  }

 private:
  const Fabric& fabric_;
  const int rank_;
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
    asm volatile(
        "st.release.sys.global.u32 [%0], %1;" ::"l"(word_of(fabric, peer, blockIdx.x, fabric.rank)),
        "r"(meeting)
        : "memory");
    const std::uint32_t* const word = word_of(fabric, fabric.rank, blockIdx.x, peer);
    std::uint32_t seen;
    Patience patience(fabric, peer);
    do {
      asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(seen) : "l"(word) : "memory");
    } while (static_cast<std::int32_t>(seen - meeting) < 0 && patience.lasts());
  }
  __syncthreads();
}

/// Stores the final count at the end of a kernel. Each block has its own counters, so that blocks
/// need not synchronise. The counters of blocks that this kernel did not launch are updated too,
/// because a later kernel may use them.
template <typename Counter>
__device__ __forceinline__ void leave(Counter& counter, std::uint32_t count) {
  __syncthreads();  // all threads have read the counter
  for (unsigned block = blockIdx.x + threadIdx.x * gridDim.x; block < kMostBlocks;
       block += gridDim.x * blockDim.x) {
    counter[block] = count;
  }
}

template <typename Counter>
__device__ __forceinline__ std::uint32_t count_of(const Counter& counter) {
  return *const_cast<const volatile std::uint32_t*>(&counter[blockIdx.x]);
}

/// Loads 16 bytes at offset `at` of a buffer of `bytes`, with any alignment. Bytes past the end are
/// zero.
__device__ __forceinline__ Line load(const std::byte* from, std::size_t at, std::size_t bytes) {
  Line line{};
  const std::byte* const place = from + at;
  if (at + 16 <= bytes && (reinterpret_cast<std::uintptr_t>(place) & 15) == 0) {
    return *reinterpret_cast<const Line*>(place);
  }
  auto* const to = reinterpret_cast<unsigned char*>(&line);
  for (int i = 0; i < 16 && at + i < bytes; ++i)
    to[i] = reinterpret_cast<const unsigned char*>(place)[i];
  return line;
}

__device__ __forceinline__ void store(std::byte* to, std::size_t at, std::size_t bytes,
                                      const Line& line) {
  std::byte* const place = to + at;
  if (at + 16 <= bytes && (reinterpret_cast<std::uintptr_t>(place) & 15) == 0) {
    *reinterpret_cast<Line*>(place) = line;
    return;
  }
  const auto* const from = reinterpret_cast<const unsigned char*>(&line);
  for (int i = 0; i < 16 && at + i < bytes; ++i)
    reinterpret_cast<unsigned char*>(place)[i] = from[i];
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
struct Sum {
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

__device__ __forceinline__ std::byte* half_of(const Fabric& fabric, int area, std::size_t place,
                                              std::size_t part, std::uint32_t half, int rank) {
  return fabric.areas[area] + place + (half * fabric.ranks + rank) * part;
}

}  // namespace
}  // namespace mccl::kernels::cuda
