// Staged calls handle any length, in rounds. In each round, each block works independently on its
// share:
// - give: copies the data that others need from this rank into their `received` area.
// - meet: waits for the blocks with the same number on all ranks.
// - take: sums or copies out the received data.
//
// An all_reduce then writes sums to the others' `results`, meets again, and copies them out.
//
// The areas have two halves, used in turn, so a half is written again two rounds later. In the
// round between, the block meets its counterparts, which have then finished reading the data of the
// first round. The halves alternate across kernels too. Otherwise a call of one round that follows
// another could overwrite data that a peer is still reading. Kernels of a stream run in order, so a
// block that meets a block of the next kernel knows that the previous kernel has ended on that
// rank.
#pragma once

#include "kernels/cuda/block.cuh"

namespace mccl::kernels::cuda {
namespace {

/// Copies lines from `begin` on, with several in flight at a time.
template <typename Load, typename Store>
__device__ __forceinline__ void move_lines(std::size_t begin, std::size_t end, std::size_t stride,
                                           const Load& load, const Store& store) {
  constexpr int kAtOnce = 4;
  std::size_t at = begin;
  for (; at + (kAtOnce - 1) * stride < end; at += kAtOnce * stride) {
    Line lines[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) lines[i] = load(at + i * stride);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) store(at + i * stride, lines[i]);
  }
  for (; at < end; at += stride) store(at, load(at));
}

/// Runs a staged call. `meeting` is the number of the last barrier so far.
template <typename T, Shape kShape>
__device__ __forceinline__ void staged_after(const Fabric& fabric, const Task& task,
                                             std::uint32_t meeting) {
  constexpr bool kSums = kShape == Shape::all_reduce || kShape == Shape::reduce_scatter;
  constexpr bool kDivided = kSums || kShape == Shape::all_to_all;
  const int own = fabric.rank;
  // An all_reduce is cut at line boundaries into one part per rank. For all other calls, `bytes` is
  // the size of a part.
  const std::size_t lines = (task.bytes + 15) / 16;
  const std::size_t part =
      kShape == Shape::all_reduce ? (lines + fabric.ranks - 1) / fabric.ranks * 16 : task.bytes;
  std::uint32_t round = count_of(fabric.counters->rounds);
  const std::size_t stride = std::size_t{16} * gridDim.x * blockDim.x;
  const std::size_t mine = std::size_t{16} * (blockIdx.x * blockDim.x + threadIdx.x);
  const auto size_of_part = [&](int rank) -> std::size_t {
    if (kShape != Shape::all_reduce) return task.bytes;
    const std::size_t begin = part * rank;
    return begin >= task.bytes ? 0 : (task.bytes - begin < part ? task.bytes - begin : part);
  };
  const auto input = [&](int rank) { return task.in + (kDivided ? part * rank : 0); };
  for (std::size_t begin = 0; begin < part; begin += kRound, ++round) {
    const std::uint32_t half = round & 1U;
    const std::size_t end = begin + kRound;
    // give
    for (int step = 1; step < fabric.ranks; ++step) {
      const int peer = (own + step) % fabric.ranks;
      if (kShape == Shape::broadcast && own != task.root) break;
      std::byte* const to = half_of(fabric, peer, fabric.layout.received, kRound, half, own);
      const std::size_t bytes = size_of_part(peer);
      const std::byte* const from = input(peer);
      move_lines(
          begin + mine, end < bytes ? end : bytes, stride,
          [&](std::size_t at) { return load(from, at, bytes); },
          [&](std::size_t at, const Line& line) {
            *reinterpret_cast<Line*>(to + at - begin) = line;
          });
    }
    meet(fabric, ++meeting);
    // take
    const auto came = [&](int peer) {
      return half_of(fabric, own, fabric.layout.received, kRound, half, peer) - begin;
    };
    if (kSums) {
      const std::size_t bytes = size_of_part(own);
      std::byte* const out = task.out + (kShape == Shape::all_reduce ? part * own : 0);
#pragma unroll 2
      for (std::size_t at = begin + mine; at < (end < bytes ? end : bytes); at += stride) {
        Line given[kMostRanks];
#pragma unroll
        for (int peer = 0; peer < kMostRanks; ++peer) {
          if (peer >= fabric.ranks) break;
          given[peer] = peer == own ? load(input(own), at, bytes)
                                    : *reinterpret_cast<const Line*>(came(peer) + at);
        }
        Sum<T> sum;
        sum.set(given[0]);
#pragma unroll
        for (int peer = 1; peer < kMostRanks; ++peer) {
          if (peer < fabric.ranks) sum.add(given[peer]);
        }
        const Line result = sum.round(task.divisor);
        store(out, at, bytes, result);
        if (kShape == Shape::all_reduce) {
          for (int step = 1; step < fabric.ranks; ++step) {
            const int peer = (own + step) % fabric.ranks;
            std::byte* const to = half_of(fabric, peer, fabric.layout.results, kRound, half, own);
            *reinterpret_cast<Line*>(to + at - begin) = result;
          }
        }
      }
    } else {
      for (int peer = 0; peer < fabric.ranks; ++peer) {
        if (kShape == Shape::broadcast && (peer != task.root || own == task.root)) continue;
        std::byte* const out = task.out + (kShape == Shape::broadcast ? 0 : peer * task.bytes);
        const std::byte* const from = peer == own ? input(own) : came(peer);
        const std::size_t there = peer == own ? task.bytes : ~std::size_t{0};
        move_lines(
            begin + mine, end < task.bytes ? end : task.bytes, stride,
            [&](std::size_t at) { return load(from, at, there); },
            [&](std::size_t at, const Line& line) { store(out, at, task.bytes, line); });
      }
    }
    if (kShape != Shape::all_reduce) continue;
    meet(fabric, ++meeting);
    for (int step = 1; step < fabric.ranks; ++step) {
      const int peer = (own + step) % fabric.ranks;
      const std::byte* const from = half_of(fabric, own, fabric.layout.results, kRound, half, peer);
      const std::size_t bytes = size_of_part(peer);
      for (std::size_t at = begin + mine; at < end && at < bytes; at += stride) {
        store(task.out + part * peer, at, bytes, *reinterpret_cast<const Line*>(from + at - begin));
      }
    }
  }
  leave(fabric.counters->rounds, round);
  leave(fabric.counters->meetings, meeting);
}

template <typename T, Shape kShape>
__device__ __forceinline__ void staged(const Fabric& fabric, const Task& task) {
  staged_after<T, kShape>(fabric, task, count_of(fabric.counters->meetings));
}

}  // namespace
}  // namespace mccl::kernels::cuda
