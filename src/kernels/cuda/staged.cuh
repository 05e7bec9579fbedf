// Staged calls handle any length, in rounds. In each round, each block works independently on its
// share:
// - give: copies the data that other ranks need from this rank into their `received` areas.
// - meet: waits for the blocks with the same number on all ranks.
// - take: sums or copies out the received data.
//
// An all_reduce then writes its sums to the `results` of the other ranks, meets again, and copies
// out the sums that it has received.
//
// The areas have two halves, used in turn, so a half is written again two rounds later. In the
// round between, the block meets the blocks with the same number on the other ranks, which have
// then finished reading the data of the first round. The halves alternate across kernels too.
// Otherwise a call of one round that follows another could overwrite data that a peer is still
// reading. Kernels of a stream run in order, so a block that meets a block of the next kernel knows
// that the previous kernel has ended on that rank.
//
// In calls of several rounds, half of the blocks are half a round ahead. While they copy received
// data out, the other blocks keep the links busy.
#pragma once

#include "kernels/cuda/block.cuh"

namespace mccl::kernels::cuda {
namespace {

/// Copies the lines between `begin` and `end` that are `stride` bytes apart, several at a time.
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

/// Loads and stores, for each other rank, this thread's lines between the offsets `begin` and `end`
/// of that rank's data, which has size_of(peer) bytes. If a thread has at most one line of each
/// rank, the lines of all ranks are in flight together.
template <typename Size, typename Load, typename Store>
__device__ __forceinline__ void move_of_others(const Fabric& fabric, std::size_t begin,
                                               std::size_t end, const Size& size_of,
                                               const Load& load, const Store& store) {
  const std::size_t at = begin + first_line();
  if (end - begin <= all_lines()) {
    Line lines[kMostRanks];
    const auto has_line = [&](int peer) { return at < end && at < size_of(peer); };
    for_others(fabric, [&](int step, int peer) {
      if (has_line(peer)) lines[step] = load(peer, at);
    });
    for_others(fabric, [&](int step, int peer) {
      if (has_line(peer)) store(peer, at, lines[step]);
    });
    return;
  }
  for (int step = 1; step < fabric.ranks; ++step) {
    const int peer = (fabric.rank + step) % fabric.ranks;
    const std::size_t bytes = size_of(peer);
    move_lines(
        at, end < bytes ? end : bytes, all_lines(),
        [&](std::size_t place) { return load(peer, place); },
        [&](std::size_t place, const Line& line) { store(peer, place, line); });
  }
}

/// One thread's share of a staged call.
template <typename T, Shape kShape>
class Staged {
 public:
  __device__ __forceinline__ Staged(const Fabric& fabric, const KernelArguments& task)
      : fabric_(fabric),
        task_(task),
        parts_(task.bytes, kShape == Shape::all_reduce ? fabric.ranks : 1) {}

  /// `meeting` is the number of the latest barrier.
  __device__ __forceinline__ void run(std::uint32_t meeting) {
    const std::uint32_t first = count_of(fabric_.counters->rounds);
    // Half a round is a multiple of all_lines() bytes. So each line of the staging area is always
    // used by the same block. This is necessary, because the barrier synchronises only blocks with
    // the same number.
    static_assert(kRound >= std::size_t{2} * 16 * kMostBlocks * kThreads);
    const std::size_t length = kRound / (2 * all_lines()) * (2 * all_lines());
    const bool is_long = parts_.part > length;
    const std::size_t ahead = is_long && blockIdx.x >= gridDim.x / 2 ? length / 2 : 0;
    // All blocks make the same number of rounds, of which the last may be empty.
    const std::size_t whole = parts_.part + (is_long ? length / 2 : 0);
    const auto rounds = static_cast<std::uint32_t>((whole + length - 1) / length);
    for (std::uint32_t round = 0; round < rounds; ++round) {
      begin_ = round == 0 ? 0 : round * length - ahead;
      end_ = (round + 1) * length - ahead;
      if (begin_ > parts_.part) begin_ = parts_.part;
      if (end_ > parts_.part) end_ = parts_.part;
      half_ = (first + round) & 1U;
      kDivided ? give_parts() : give_whole();
      meet(fabric_, ++meeting);
      kSums ? sum() : take();
      if (kShape != Shape::all_reduce) continue;
      meet(fabric_, ++meeting);
      take_results();
    }
    leave(fabric_.counters->rounds, first + rounds);
    leave(fabric_.counters->meetings, meeting);
  }

 private:
  static constexpr bool kSums = kShape == Shape::all_reduce || kShape == Shape::reduce_scatter;
  static constexpr bool kDivided = kSums || kShape == Shape::all_to_all;

  /// Size in bytes of a rank's part. The buffer of an all_reduce is cut into one part per rank. For
  /// all other calls, KernelArguments::bytes is the size of a part.
  __device__ __forceinline__ std::size_t size_of(int rank) const {
    return kShape == Shape::all_reduce ? parts_.size_of(rank) : task_.bytes;
  }
  __device__ __forceinline__ const std::byte* input(int rank) const {
    return task_.in +
           (kDivided ? (kShape == Shape::all_reduce ? parts_.part : task_.bytes) * rank : 0);
  }
  /// Base address of the data of rank `from`: adding an offset in the part gives the address of
  /// that byte. The area holds only the bytes from offset begin_ on, so begin_ is subtracted.
  __device__ __forceinline__ std::byte* place(int area, std::size_t offset, int from) const {
    return half_of(fabric_, area, offset, kRound, half_, from) - begin_;
  }

  __device__ __forceinline__ void give_parts() const {
    move_of_others(
        fabric_, begin_, end_, [&](int peer) { return size_of(peer); },
        [&](int peer, std::size_t at) { return load(input(peer), at, size_of(peer)); },
        [&](int peer, std::size_t at, const Line& line) {
          *reinterpret_cast<Line*>(place(peer, fabric_.layout.received, fabric_.rank) + at) = line;
        });
  }

  __device__ __forceinline__ void give_whole() const {
    move_lines(
        begin_ + first_line(), end_, all_lines(),
        [&](std::size_t at) { return load(task_.in, at, task_.bytes); },
        [&](std::size_t at, const Line& line) {
          for_others(fabric_, [&](int, int peer) {
            *reinterpret_cast<Line*>(place(peer, fabric_.layout.received, fabric_.rank) + at) =
                line;
          });
        });
  }

  /// With two ranks, a thread has enough registers to sum several lines at a time. This makes a
  /// reduce_scatter faster, but not an all_reduce.
  __device__ __forceinline__ void sum() const {
    if (kShape == Shape::reduce_scatter && fabric_.ranks == 2) {
      sum_at_once<2, 4>();
    } else {
      sum_at_once<kMostRanks, 1>();
    }
  }

  template <int kRanks, int kAtOnce>
  __device__ __forceinline__ void sum_at_once() const {
    const std::size_t bytes = size_of(fabric_.rank);
    const std::size_t end = end_ < bytes ? end_ : bytes;
    std::size_t at = begin_ + first_line();
    if constexpr (kAtOnce > 1) {
      for (; at + (kAtOnce - 1) * all_lines() < end; at += kAtOnce * all_lines()) {
        sum_lines<kRanks, kAtOnce>(at, bytes);
      }
    }
#pragma unroll 2
    for (; at < end; at += all_lines()) sum_lines<kRanks, 1>(at, bytes);
  }

  /// Sums kLines lines of this thread over all ranks. The loads of all these lines are in flight
  /// together.
  template <int kRanks, int kLines>
  __device__ __forceinline__ void sum_lines(std::size_t first, std::size_t bytes) const {
    const int own = fabric_.rank;
    Line mine[kLines];
    Line given[kLines][kRanks];
#pragma unroll
    for (int i = 0; i < kLines; ++i) {
      const std::size_t at = first + i * all_lines();
#pragma unroll
      for (int peer = 0; peer < kRanks; ++peer) {
        if (peer < fabric_.ranks) given[i][peer] = received(peer, at);  // own rank: not used
      }
      mine[i] = load(input(own), at, bytes);
    }
    std::byte* const out = task_.out + (kShape == Shape::all_reduce ? parts_.part * own : 0);
#pragma unroll
    for (int i = 0; i < kLines; ++i) {
      const std::size_t at = first + i * all_lines();
      const Line result = sum_of_ranks<T>(fabric_, mine[i], given[i]).round(task_.divisor);
      store(out, at, bytes, result);
      if (kShape == Shape::all_reduce) {
        for_others(fabric_, [&](int, int peer) {
          *reinterpret_cast<Line*>(place(peer, fabric_.layout.results, own) + at) = result;
        });
      }
    }
  }

  __device__ __forceinline__ Line received(int peer, std::size_t at) const {
    return *reinterpret_cast<const Line*>(place(fabric_.rank, fabric_.layout.received, peer) + at);
  }

  __device__ __forceinline__ void take() const {
    move_of_others(
        fabric_, begin_, end_, [&](int) { return task_.bytes; },
        [&](int peer, std::size_t at) { return received(peer, at); },
        [&](int peer, std::size_t at, const Line& line) {
          store(task_.out + peer * task_.bytes, at, task_.bytes, line);
        });
    const std::byte* const from = input(fabric_.rank);
    std::byte* const to = task_.out + fabric_.rank * task_.bytes;
    if (from == to) return;
    move_lines(
        begin_ + first_line(), end_, all_lines(),
        [&](std::size_t at) { return load(from, at, task_.bytes); },
        [&](std::size_t at, const Line& line) { store(to, at, task_.bytes, line); });
  }

  __device__ __forceinline__ void take_results() const {
    move_of_others(
        fabric_, begin_, end_, [&](int peer) { return size_of(peer); },
        [&](int peer, std::size_t at) {
          return *reinterpret_cast<const Line*>(place(fabric_.rank, fabric_.layout.results, peer) +
                                                at);
        },
        [&](int peer, std::size_t at, const Line& line) {
          store(task_.out + parts_.part * peer, at, size_of(peer), line);
        });
  }

  const Fabric& fabric_;
  const KernelArguments& task_;
  const LineParts parts_;
  /// Range of offsets in each part, in bytes, that this block sends and receives in this round.
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::uint32_t half_ = 0;
};

template <typename T, Shape kShape>
__device__ __forceinline__ void staged(const Fabric& fabric, const KernelArguments& task) {
  Staged<T, kShape>(fabric, task).run(count_of(fabric.counters->meetings));
}

}  // namespace
}  // namespace mccl::kernels::cuda
