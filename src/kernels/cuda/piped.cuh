// Sums in steps, so that the way between the GPUs is never idle: an all_reduce by parts, as in
// staged.cuh, of which each block gives one piece while others of its pieces are on their way.
//   step s:  wait until all others have told step s - lag;
//            give piece s to whoever sums it;
//            sum what has come of piece s - lag, and give the sums to all;
//            copy out the others' sums of piece s - 2 lag;
//            tell the others that this step is over.
// So one flag says both that a piece has come and that older ones have been taken. A piece lies in
// one of 2 lag slots. The slot is given into again 2 lag steps later, at which the block has heard
// of the others' step at which they took what lay there. The first `lag` pieces of a call go
// without having heard anything, into the half of the area that staged.cuh's halves leave, as a
// call of one round; the last steps are not told, since nobody waits for them.
//
// kPulls: what is to be summed is laid ready where it is, and whoever sums it reads it there.
#pragma once

#include "kernels/cuda/block.cuh"

namespace mccl::kernels::cuda {
namespace {

template <typename T, int kLines, bool kPulls>
__device__ __forceinline__ void piped(const Fabric& fabric, const Task& task) {
  const int own = fabric.rank;
  const std::size_t lines = (task.bytes + 15) / 16;
  const std::size_t part = (lines + fabric.ranks - 1) / fabric.ranks * 16;
  const std::size_t stride = std::size_t{16} * gridDim.x * blockDim.x;
  const std::size_t piece = kLines * stride;
  const std::size_t mine = std::size_t{16} * (blockIdx.x * blockDim.x + threadIdx.x);
  const auto pieces = static_cast<std::uint32_t>((part + piece - 1) / piece);
  const std::uint32_t lag = task.lag < pieces ? task.lag : pieces;
  const std::uint32_t before = count_of(fabric.counters->meetings);
  const std::uint32_t round = count_of(fabric.counters->rounds);
  const auto size_of_part = [&](int rank) -> std::size_t {
    const std::size_t begin = part * rank;
    return begin >= task.bytes ? 0 : (task.bytes - begin < part ? task.bytes - begin : part);
  };
  const auto slot_of = [&](int area, std::size_t place, std::uint32_t number, int rank) {
    return half_of(fabric, area, place, kRound, round & 1U, rank) + number % (2 * lag) * piece;
  };
  const auto to_sum = [&](std::uint32_t number, int giver, int summer) {
    return kPulls ? slot_of(giver, fabric.layout.received, number, summer)
                  : slot_of(summer, fabric.layout.received, number, giver);
  };
  const std::size_t own_bytes = size_of_part(own);
  for (std::uint32_t step = 0; step < pieces + 2 * lag; ++step) {
    if (step >= lag) await(fabric, before + step - lag + 1);
    if (step < pieces) {
      for (int turn = 1; turn < fabric.ranks; ++turn) {
        const int peer = (own + turn) % fabric.ranks;
        Batch<kLines> batch;
        batch.load_from(task.in + part * peer, step * piece + mine, stride, size_of_part(peer));
        batch.store_to(to_sum(step, own, peer), mine, stride, piece);
      }
    }
    if (step >= lag && step - lag < pieces) {
      const std::uint32_t number = step - lag;
      Sum<T> sums[kLines];
#pragma unroll 2
      for (int peer = 0; peer < fabric.ranks; ++peer) {
        const bool is_own = peer == own;
        Batch<kLines> batch;
        batch.load_from(is_own ? task.in + part * own : to_sum(number, peer, own),
                        is_own ? number * piece + mine : mine, stride, is_own ? own_bytes : piece);
#pragma unroll
        for (int i = 0; i < kLines; ++i) {
          peer == 0 ? sums[i].set(batch.lines[i]) : sums[i].add(batch.lines[i]);
        }
      }
      Batch<kLines> results;
#pragma unroll
      for (int i = 0; i < kLines; ++i) results.lines[i] = sums[i].round(task.divisor);
      for (int turn = 1; turn < fabric.ranks; ++turn) {
        const int peer = (own + turn) % fabric.ranks;
        results.store_to(slot_of(peer, fabric.layout.results, number, own), mine, stride, piece);
      }
      results.store_to(task.out + part * own, number * piece + mine, stride, own_bytes);
    }
    if (step >= 2 * lag) {
      const std::uint32_t number = step - 2 * lag;
      for (int turn = 1; turn < fabric.ranks; ++turn) {
        const int peer = (own + turn) % fabric.ranks;
        Batch<kLines> batch;
        batch.load_from(slot_of(own, fabric.layout.results, number, peer), mine, stride, piece);
        batch.store_to(task.out + part * peer, number * piece + mine, stride, size_of_part(peer));
      }
    }
    if (step < pieces + lag) tell(fabric, before + step + 1);
  }
  leave(fabric.counters->rounds, round + 1);
  leave(fabric.counters->meetings, before + pieces + lag);
}

}  // namespace
}  // namespace mccl::kernels::cuda
