// Pooled calls read the inputs of the other ranks in place, in windows that the ranks have
// announced to each other. Nothing is copied to a staging area.
//
// A call has three phases:
// - meet: the barrier. Each rank announces the place of its input, next to its word of the barrier.
// - work: each rank reads the inputs. If the input of any rank cannot be reached, the announcements
//   show this to all ranks, which then continue as in staged.cuh.
// - meet: the barrier again, so that no rank leaves before all ranks have finished reading its
// input.
#pragma once

#include "kernels/cuda/block.cuh"
#include "kernels/cuda/staged.cuh"

namespace mccl::kernels::cuda {
namespace {

/// Address, in the staging area of rank `area`, at which rank `rank` announces the place of its
/// input. The address is in the same 64 bytes as the barrier's word for this block and `rank`.
__device__ __forceinline__ volatile std::uint64_t* place_of(const Fabric& fabric, int area,
                                                            int rank) {
  return reinterpret_cast<volatile std::uint64_t*>(word_of(fabric, area, blockIdx.x, rank) + 4);
}

/// The inputs of all ranks, at addresses that are valid on this rank.
struct Reached {
  const std::byte* in[kMostRanks];
  int nowhere;  ///< True if other ranks cannot reach some rank's input.
  int late;     ///< True if some rank has not reached the barrier in time.
};

/// Waits for the other ranks with meet(), and exchanges the places of all inputs.
__device__ __forceinline__ void find_all(const Fabric& fabric, const KernelArguments& task,
                                         Reached& reached, std::uint32_t meeting) {
  const int peer = static_cast<int>(threadIdx.x);
  const bool is_peer = peer < fabric.ranks && peer != fabric.rank;
  if (peer == 0) reached.nowhere = reached.late = 0;
  if (is_peer) *place_of(fabric, peer, fabric.rank) = task.in_place;
  meet(fabric, meeting);
  if (peer < fabric.ranks) {
    std::uint64_t place = task.in_place;
    if (is_peer) {
      place = *place_of(fabric, fabric.rank, peer);
      const std::uint32_t seen = *const_cast<const volatile std::uint32_t*>(
          word_of(fabric, fabric.rank, blockIdx.x, peer));
      if (static_cast<std::int32_t>(seen - meeting) < 0) atomicOr(&reached.late, 1);
    }
    if (place == kNowhere) {
      atomicOr(&reached.nowhere, 1);
    } else {
      reached.in[peer] = fabric.windows[peer * kMostWindows + window_of(place)] + offset_of(place);
    }
  }
  __syncthreads();
}

/// Copies this thread's share of the `bytes` bytes at `from` to `to`.
__device__ __forceinline__ void fetch(const std::byte* from, std::byte* to, std::size_t bytes) {
  constexpr int kLines = 4;
  if (from == to) return;
  for (std::size_t at = first_line(); at < bytes; at += kLines * all_lines()) {
    Batch<kLines> batch;
    batch.load_from(from, at, all_lines(), bytes);
    batch.store_to(to, at, all_lines(), bytes);
  }
}

template <typename T, Shape kShape>
__device__ __forceinline__ void pooled(const Fabric& fabric, const KernelArguments& task) {
  constexpr int kLines = 4;
  __shared__ Reached reached;
  const int own = fabric.rank;
  const std::uint32_t meeting = count_of(fabric.counters->meetings) + 1;
  find_all(fabric, task, reached, meeting);
  if (reached.late) return leave(fabric.counters->meetings, meeting);
  if (reached.nowhere) return Staged<T, kShape>(fabric, task).run(meeting);
  if constexpr (kShape == Shape::reduce_scatter) {
    const std::size_t begin = task.bytes * own;
    for (std::size_t at = first_line(); at < task.bytes; at += kLines * all_lines()) {
      LineSum<T> sums[kLines];
#pragma unroll 2
      for (int peer = 0; peer < fabric.ranks; ++peer) {
        Batch<kLines> batch;
        batch.load_from(reached.in[peer] + begin, at, all_lines(), task.bytes);
#pragma unroll
        for (int i = 0; i < kLines; ++i) {
          peer == 0 ? sums[i].set(batch.lines[i]) : sums[i].add(batch.lines[i]);
        }
      }
      Batch<kLines> results;
#pragma unroll
      for (int i = 0; i < kLines; ++i) results.lines[i] = sums[i].round(task.divisor);
      results.store_to(task.out, at, all_lines(), task.bytes);
    }
  } else {
    for (int turn = 0; turn < fabric.ranks; ++turn) {
      const int peer = (own + turn) % fabric.ranks;
      fetch(reached.in[peer], task.out + peer * task.bytes, task.bytes);
    }
  }
  meet(fabric, meeting + 1);
  leave(fabric.counters->meetings, meeting + 1);
}

}  // namespace
}  // namespace mccl::kernels::cuda
