// In flagged calls, each rank writes its data to all other ranks in lines of 16 bytes. Every second
// word of a line is the number of the call. A reader loads data and number together, so it needs no
// other signal. Flagged calls have the lowest latency, but send twice as many bytes as the data
// has.
//
// The two halves of the area (StagingLayout::flagged) are used in turn. A rank writes to the same
// half again two calls later. In the call between, it receives data from every other rank, which
// shows that all of them have finished reading that half.
//
// Small sums are computed completely by every rank. For larger sums, each rank computes one part
// and sends it to all others in the same way.
#pragma once

#include "kernels/cuda/block.cuh"

namespace mccl::kernels::cuda {
namespace {

/// Stores eight bytes of data, with the call's number after each word.
__device__ __forceinline__ void put_flagged(std::byte* to, std::uint32_t a, std::uint32_t b,
                                            std::uint32_t number) {
  store_whole(to, {{a, number, b, number}});
}

__device__ __forceinline__ bool get_flagged(const std::byte* from, std::uint32_t& a,
                                            std::uint32_t& b, std::uint32_t number) {
  const Line line = load_whole(from);
  a = line.words[0];
  b = line.words[2];
  return line.words[1] == number && line.words[3] == number;
}

__device__ __forceinline__ std::byte* flagged_place(const Fabric& fabric, int area, int from,
                                                    std::uint32_t half, std::size_t at) {
  return half_of(fabric, area, fabric.layout.flagged, 2 * kMostFlagged, half, from) + 2 * at;
}

/// Waits for a line from `peer`. `at` is the offset in the data that the peer sends in this call.
__device__ __forceinline__ Line take_flagged(const Fabric& fabric, int peer, std::uint32_t half,
                                             std::size_t at, std::uint32_t number) {
  Line line;
  const std::byte* const from = flagged_place(fabric, fabric.rank, peer, half, at);
  Patience patience(fabric);
  bool is_there = false;
  do {
    const bool first = get_flagged(from, line.words[0], line.words[1], number);
    is_there = get_flagged(from + 16, line.words[2], line.words[3], number) && first;
  } while (!is_there && patience.lasts(peer));
  return line;
}

/// Waits for a line from each rank for which `is_wanted(peer)` is true. The loads from all ranks
/// are in flight together. `lines` is indexed by rank.
template <typename Wanted>
__device__ __forceinline__ void take_flagged_of_others(const Fabric& fabric, std::uint32_t half,
                                                       std::size_t at, std::uint32_t number,
                                                       const Wanted& is_wanted, Line* lines) {
  Patience patience(fabric);
  int missing = -1;
  do {
    missing = -1;
    for_wanted(fabric, is_wanted, [&](int peer) {
      const std::byte* const from = flagged_place(fabric, fabric.rank, peer, half, at);
      Line& line = lines[peer];
      const bool first = get_flagged(from, line.words[0], line.words[1], number);
      const bool second = get_flagged(from + 16, line.words[2], line.words[3], number);
      if (!(first && second)) missing = peer;
    });
  } while (missing >= 0 && patience.lasts(missing));
}

__device__ __forceinline__ void give_flagged(const Fabric& fabric, int peer, std::uint32_t half,
                                             std::size_t at, const Line& line,
                                             std::uint32_t number) {
  std::byte* const to = flagged_place(fabric, peer, fabric.rank, half, at);
  put_flagged(to, line.words[0], line.words[1], number);
  put_flagged(to + 16, line.words[2], line.words[3], number);
}

/// Sums the lines of all ranks at the offset `at`. `own` is the line of this rank.
template <typename T>
__device__ __forceinline__ Line sum_flagged(const Fabric& fabric, std::uint32_t half,
                                            std::size_t at, const Line& own, std::uint32_t number,
                                            float divisor) {
  Line lines[kMostRanks];
  take_flagged_of_others(
      fabric, half, at, number, [](int) { return true; }, lines);
  return sum_of_ranks<T>(fabric, own, lines).round(divisor);
}

/// Sends this rank's data to all other ranks. If kSums is true, each rank then sums the data of all
/// ranks. Otherwise it stores them one after another.
template <typename T, bool kSums>
__device__ __forceinline__ void flagged(const Fabric& fabric, const KernelArguments& task) {
  const std::uint32_t number = count_of(fabric.counters->flagged) + 1;
  const std::uint32_t half = number & 1U;
  for (std::size_t at = first_line(); at < task.bytes; at += all_lines()) {
    const Line own = load(task.in, at, task.bytes);
    for_others(fabric, [&](int, int peer) { give_flagged(fabric, peer, half, at, own, number); });
    if constexpr (kSums) {
      store(task.out, at, task.bytes, sum_flagged<T>(fabric, half, at, own, number, task.divisor));
    } else {
      Line lines[kMostRanks];
      take_flagged_of_others(
          fabric, half, at, number, [](int) { return true; }, lines);
#pragma unroll
      for (int peer = 0; peer < kMostRanks; ++peer) {
        if (peer >= fabric.ranks) break;
        const Line line = peer == fabric.rank ? own : lines[peer];
        store(task.out + peer * task.bytes, at, task.bytes, line);
      }
    }
  }
  leave(fabric.counters->flagged, number);
}

/// Computes one part of the sum on each rank. In an all_reduce (kSendsBack), each rank then sends
/// its part to all others.
template <typename T, bool kSendsBack>
__device__ __forceinline__ void flagged_parts(const Fabric& fabric, const KernelArguments& task) {
  constexpr std::size_t kResults = kMostFlagged / 2;
  const std::uint32_t number = count_of(fabric.counters->flagged) + 1;
  const std::uint32_t half = number & 1U;
  const int own = fabric.rank;
  const LineParts parts(task.bytes, fabric.ranks);
  const std::size_t part = kSendsBack ? parts.part : task.bytes;
  const auto size_of = [&](int rank) { return kSendsBack ? parts.size_of(rank) : task.bytes; };
  for (std::size_t at = first_line(); at < part; at += all_lines()) {
    Line lines[kMostRanks];
    for_others(fabric, [&](int step, int peer) {
      if (at < size_of(peer)) lines[step] = load(task.in + part * peer, at, size_of(peer));
    });
    for_others(fabric, [&](int step, int peer) {
      if (at < size_of(peer)) give_flagged(fabric, peer, half, at, lines[step], number);
    });
  }
  for (std::size_t at = first_line(); at < size_of(own); at += all_lines()) {
    const Line result = sum_flagged<T>(
        fabric, half, at, load(task.in + part * own, at, size_of(own)), number, task.divisor);
    if constexpr (kSendsBack) {
      for_others(fabric, [&](int, int peer) {
        give_flagged(fabric, peer, half, kResults + at, result, number);
      });
    }
    store(task.out + (kSendsBack ? part * own : 0), at, size_of(own), result);
  }
  if constexpr (kSendsBack) {
    for (std::size_t at = first_line(); at < part; at += all_lines()) {
      Line lines[kMostRanks];
      const auto is_wanted = [&](int peer) { return at < size_of(peer); };
      take_flagged_of_others(fabric, half, kResults + at, number, is_wanted, lines);
      for_wanted(fabric, is_wanted,
                 [&](int peer) { store(task.out + part * peer, at, size_of(peer), lines[peer]); });
    }
  }
  leave(fabric.counters->flagged, number);
}

}  // namespace
}  // namespace mccl::kernels::cuda
