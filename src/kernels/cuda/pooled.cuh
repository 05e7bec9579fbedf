// Pooled calls work on data that all ranks access in place, in windows that they have announced to
// each other. Nothing is copied to a staging area. Inputs are read from the peers' memory. In an
// all_reduce, each rank sums one part and writes the result to all ranks.
//
// A call has three phases:
// - meet: the barrier. Each rank announces the places of its data, next to its word of the barrier.
// - work: reads and writes. If the data of any rank cannot be reached, the announcements show this
//   to all ranks, which then continue as in staged.cuh.
// - meet: the barrier again, so that no rank leaves before all ranks have finished reading and
//   writing its data.
#pragma once

#include "kernels/cuda/block.cuh"
#include "kernels/cuda/staged.cuh"

namespace mccl::kernels::cuda {
namespace {

/// Stored in the same line as the word through which a block meets its counterpart on another rank.
struct Places {
  std::uint64_t in;
  std::uint64_t out;
};

__device__ __forceinline__ volatile Places* places_of(const Fabric& fabric, int area, int rank) {
  return reinterpret_cast<volatile Places*>(word_of(fabric, area, blockIdx.x, rank) + 4);
}

/// The data of all ranks, at addresses that are valid on this rank.
struct Reached {
  std::byte* in[kMostRanks];
  std::byte* out[kMostRanks];
  int nowhere;  ///< True if other ranks cannot reach some rank's data.
  int late;     ///< True if some rank has not reached the barrier in time.
};

__device__ __forceinline__ std::byte* reach(const Fabric& fabric, int rank, std::uint64_t place) {
  return fabric.windows[rank * kMostWindows + window_of(place)] + offset_of(place);
}

/// Waits for the other ranks with meet(), and exchanges the places of all data.
template <bool kWrites>
__device__ __forceinline__ void find_all(const Fabric& fabric, const Task& task, Reached& reached,
                                         std::uint32_t meeting) {
  const int peer = static_cast<int>(threadIdx.x);
  const bool is_peer = peer < fabric.ranks && peer != fabric.rank;
  if (peer == 0) reached.nowhere = reached.late = 0;
  if (is_peer) {
    volatile Places* const there = places_of(fabric, peer, fabric.rank);
    there->in = task.in_place;
    there->out = task.out_place;
  }
  meet(fabric, meeting);
  if (peer < fabric.ranks) {
    Places places{task.in_place, task.out_place};
    if (is_peer) {
      const volatile Places* const told = places_of(fabric, fabric.rank, peer);
      places = {told->in, told->out};
      const std::uint32_t seen = *const_cast<const volatile std::uint32_t*>(
          word_of(fabric, fabric.rank, blockIdx.x, peer));
      if (static_cast<std::int32_t>(seen - meeting) < 0) atomicOr(&reached.late, 1);
    }
    if (places.in == kNowhere || (kWrites && places.out == kNowhere)) {
      atomicOr(&reached.nowhere, 1);
    } else {
      reached.in[peer] = reach(fabric, peer, places.in);
      if (kWrites) reached.out[peer] = reach(fabric, peer, places.out);
    }
  }
  __syncthreads();
}

/// Copies this thread's share of the data at `from`.
__device__ __forceinline__ void fetch(const std::byte* from, std::byte* to, std::size_t bytes) {
  constexpr int kLines = 4;
  const std::size_t stride = std::size_t{16} * gridDim.x * blockDim.x;
  const std::size_t mine = std::size_t{16} * (blockIdx.x * blockDim.x + threadIdx.x);
  if (from == to) return;
  for (std::size_t at = mine; at < bytes; at += kLines * stride) {
    Batch<kLines> batch;
    batch.load_from(from, at, stride, bytes);
    batch.store_to(to, at, stride, bytes);
  }
}

template <typename T, Shape kShape>
__device__ __forceinline__ void pooled(const Fabric& fabric, const Task& task) {
  constexpr bool kWrites = kShape == Shape::all_reduce;
  constexpr int kLines = 4;
  __shared__ Reached reached;
  const int own = fabric.rank;
  const std::uint32_t meeting = count_of(fabric.counters->meetings) + 1;
  find_all<kWrites>(fabric, task, reached, meeting);
  if (reached.late) return leave(fabric.counters->meetings, meeting);
  if (reached.nowhere) return staged_after<T, kShape>(fabric, task, meeting);
  if constexpr (kShape == Shape::all_reduce || kShape == Shape::reduce_scatter) {
    const std::size_t lines = (task.bytes + 15) / 16;
    const std::size_t part = kWrites ? (lines + fabric.ranks - 1) / fabric.ranks * 16 : task.bytes;
    const std::size_t begin = part * own;
    const std::size_t left = task.bytes > begin ? task.bytes - begin : 0;
    const std::size_t bytes = !kWrites || left > part ? part : left;
    const std::size_t stride = std::size_t{16} * gridDim.x * blockDim.x;
    const std::size_t mine = std::size_t{16} * (blockIdx.x * blockDim.x + threadIdx.x);
    for (std::size_t at = mine; at < bytes; at += kLines * stride) {
      Sum<T> sums[kLines];
#pragma unroll 2
      for (int peer = 0; peer < fabric.ranks; ++peer) {
        Batch<kLines> batch;
        batch.load_from(reached.in[peer] + begin, at, stride, bytes);
#pragma unroll
        for (int i = 0; i < kLines; ++i) {
          peer == 0 ? sums[i].set(batch.lines[i]) : sums[i].add(batch.lines[i]);
        }
      }
      Batch<kLines> results;
#pragma unroll
      for (int i = 0; i < kLines; ++i) results.lines[i] = sums[i].round(task.divisor);
      if constexpr (kWrites) {
        for (int turn = 0; turn < fabric.ranks; ++turn) {
          const int peer = (own + turn) % fabric.ranks;
          results.store_to(reached.out[peer] + begin, at, stride, bytes);
        }
      } else {
        results.store_to(task.out, at, stride, bytes);
      }
    }
  } else if constexpr (kShape == Shape::broadcast) {
    if (own != task.root) fetch(reached.in[task.root], task.out, task.bytes);
  } else {
    for (int turn = 0; turn < fabric.ranks; ++turn) {
      const int peer = (own + turn) % fabric.ranks;
      const std::size_t begin = kShape == Shape::all_to_all ? task.bytes * own : 0;
      fetch(reached.in[peer] + begin, task.out + peer * task.bytes, task.bytes);
    }
  }
  meet(fabric, meeting + 1);
  leave(fabric.counters->meetings, meeting + 1);
}

}  // namespace
}  // namespace mccl::kernels::cuda
