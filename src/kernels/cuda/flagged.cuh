// In flagged calls, each rank writes its data to all others in lines of 16 bytes. Every second word
// of a line is the number of the call. A reader loads data and number together, so it needs no
// other signal. This has the lowest latency, but sends twice the bytes.
//
// The halves of the area are used in turn. A rank writes to the same half again two calls later. In
// the call between, it receives data from every other rank, so all have finished reading the first
// half.
//
// Small sums are computed completely by every rank. For larger ones, each rank computes one part
// and sends it back in the same way.
#pragma once

#include "kernels/cuda/block.cuh"

namespace mccl::kernels::cuda {
namespace {

/// Stores eight bytes of data, with the call's number after each word.
__device__ __forceinline__ void put_flagged(std::byte* to, std::uint32_t a, std::uint32_t b,
                                            std::uint32_t number) {
  asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(a), "r"(number),
               "r"(b), "r"(number)
               : "memory");
}

__device__ __forceinline__ bool get_flagged(const std::byte* from, std::uint32_t& a,
                                            std::uint32_t& b, std::uint32_t number) {
  std::uint32_t first, second;
  asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(a), "=r"(first), "=r"(b), "=r"(second)
               : "l"(from)
               : "memory");
  return first == number && second == number;
}

/// Waits for a line from `peer`. `at` is the offset in the data that the peer sends in this call.
__device__ __forceinline__ Line take_flagged(const Fabric& fabric, int peer, std::uint32_t half,
                                             std::size_t at, std::uint32_t number) {
  Line line;
  const std::byte* const from =
      half_of(fabric, fabric.rank, fabric.layout.flagged, 2 * kMostFlagged, half, peer) + 2 * at;
  Patience patience(fabric, peer);
  while (!get_flagged(from, line.words[0], line.words[1], number) && patience.lasts()) {
  }
  while (!get_flagged(from + 16, line.words[2], line.words[3], number) && patience.lasts()) {
  }
  return line;
}

__device__ __forceinline__ void give_flagged(const Fabric& fabric, int peer, std::uint32_t half,
                                             std::size_t at, const Line& line,
                                             std::uint32_t number) {
  std::byte* const to =
      half_of(fabric, peer, fabric.layout.flagged, 2 * kMostFlagged, half, fabric.rank) + 2 * at;
  put_flagged(to, line.words[0], line.words[1], number);
  put_flagged(to + 16, line.words[2], line.words[3], number);
}

/// Sums the data of all ranks at one offset, including this rank's `own`.
template <typename T>
__device__ __forceinline__ Line sum_flagged(const Fabric& fabric, std::uint32_t half,
                                            std::size_t at, const Line& own, std::uint32_t number,
                                            float divisor) {
  Sum<T> sum;
  for (int peer = 0; peer < fabric.ranks; ++peer) {
    const Line line = peer == fabric.rank ? own : take_flagged(fabric, peer, half, at, number);
    peer == 0 ? sum.set(line) : sum.add(line);
  }
  return sum.round(divisor);
}

/// Sends every rank's data to every rank, which sums it or stores it side by side.
template <typename T, bool kSums>
__device__ __forceinline__ void flagged(const Fabric& fabric, const Task& task) {
  const std::uint32_t number = count_of(fabric.counters->flagged) + 1;
  const std::uint32_t half = number & 1U;
  const std::size_t stride = std::size_t{16} * gridDim.x * blockDim.x;
  const std::size_t first = std::size_t{16} * (blockIdx.x * blockDim.x + threadIdx.x);
  for (std::size_t at = first; at < task.bytes; at += stride) {
    const Line own = load(task.in, at, task.bytes);
    for (int step = 1; step < fabric.ranks; ++step) {
      give_flagged(fabric, (fabric.rank + step) % fabric.ranks, half, at, own, number);
    }
    if constexpr (kSums) {
      store(task.out, at, task.bytes, sum_flagged<T>(fabric, half, at, own, number, task.divisor));
    } else {
      for (int peer = 0; peer < fabric.ranks; ++peer) {
        store(task.out + peer * task.bytes, at, task.bytes,
              peer == fabric.rank ? own : take_flagged(fabric, peer, half, at, number));
      }
    }
  }
  leave(fabric.counters->flagged, number);
}

/// Computes one part of the sum on each rank. An all_reduce sends the parts back.
template <typename T, bool kSendsBack>
__device__ __forceinline__ void flagged_parts(const Fabric& fabric, const Task& task) {
  const std::uint32_t number = count_of(fabric.counters->flagged) + 1;
  const std::uint32_t half = number & 1U;
  const int own = fabric.rank;
  const std::size_t lines = (task.bytes + 15) / 16;
  const std::size_t part = kSendsBack ? (lines + fabric.ranks - 1) / fabric.ranks * 16 : task.bytes;
  const auto size_of_part = [&](int rank) -> std::size_t {
    if (!kSendsBack) return part;
    const std::size_t begin = part * rank;
    return begin >= task.bytes ? 0 : (task.bytes - begin < part ? task.bytes - begin : part);
  };
  const std::size_t stride = std::size_t{16} * gridDim.x * blockDim.x;
  const std::size_t first = std::size_t{16} * (blockIdx.x * blockDim.x + threadIdx.x);
  for (int step = 1; step < fabric.ranks; ++step) {
    const int peer = (own + step) % fabric.ranks;
    const std::size_t bytes = size_of_part(peer);
    for (std::size_t at = first; at < bytes; at += stride) {
      give_flagged(fabric, peer, half, at, load(task.in + part * peer, at, bytes), number);
    }
  }
  const std::size_t bytes = size_of_part(own);
  for (std::size_t at = first; at < bytes; at += stride) {
    const Line result = sum_flagged<T>(fabric, half, at, load(task.in + part * own, at, bytes),
                                       number, task.divisor);
    if constexpr (kSendsBack) {
      for (int step = 1; step < fabric.ranks; ++step) {
        give_flagged(fabric, (own + step) % fabric.ranks, half, kMostFlagged / 2 + at, result,
                     number);
      }
    }
    store(task.out + (kSendsBack ? part * own : 0), at, bytes, result);
  }
  if constexpr (kSendsBack) {
    for (int step = 1; step < fabric.ranks; ++step) {
      const int peer = (own + step) % fabric.ranks;
      const std::size_t theirs = size_of_part(peer);
      for (std::size_t at = first; at < theirs; at += stride) {
        store(task.out + part * peer, at, theirs,
              take_flagged(fabric, peer, half, kMostFlagged / 2 + at, number));
      }
    }
  }
  leave(fabric.counters->flagged, number);
}

}  // namespace
}  // namespace mccl::kernels::cuda
