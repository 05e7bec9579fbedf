// A broadcast to several ranks is cut into one part for each rank but the root. The root sends each
// rank its part, and the rank forwards the part to the other ranks, so the root sends the data only
// once.
//
// A long broadcast runs in rounds, as in staged.cuh. In each round, the root sends the next piece
// of every part to `received`, while the other ranks forward the piece of the previous round to
// `results`. After the barrier of the round, each rank copies out the pieces that other ranks have
// forwarded. A half of `received` is thus read one round after it was written, and written again
// one barrier later. With two ranks, nothing is forwarded.
//
// A short broadcast uses flagged lines and no barrier. Some ranks receive no data from others; the
// root, for example, receives none at all. So every rank also sends a token to every other rank,
// and waits for their tokens. Like the data of other flagged calls, a token shows that its sender
// has finished the previous call. The half that the previous call used can then be written again.
#pragma once

#include "kernels/cuda/flagged.cuh"
#include "kernels/cuda/staged.cuh"

namespace mccl::kernels::cuda {
namespace {

/// The parts of a broadcast. Part 0 belongs to the rank after the root.
struct BroadcastParts : LineParts {
  __device__ __forceinline__ BroadcastParts(const Fabric& fabric, const KernelArguments& task)
      : LineParts(task.bytes, fabric.ranks - 1), root(task.root), ranks(fabric.ranks) {}
  __device__ __forceinline__ int index_of(int rank) const {
    return (rank - root - 1 + ranks) % ranks;
  }
  __device__ __forceinline__ std::size_t begin_of(int rank) const { return part * index_of(rank); }
  __device__ __forceinline__ std::size_t bytes_of(int rank) const {
    return size_of(index_of(rank));
  }

  int root;
  int ranks;
};

/// One thread's share of a long broadcast.
class Broadcast {
 public:
  __device__ __forceinline__ Broadcast(const Fabric& fabric, const KernelArguments& task)
      : fabric_(fabric), task_(task), parts_(fabric, task) {
    // More pieces overlap better, but each piece costs a barrier. The number of pieces is the
    // square root of task.bytes / kSentInBarrier, rounded up.
    std::size_t pieces = 1;
    while (pieces * pieces * kSentInBarrier < task.bytes) ++pieces;
    piece_ = ((parts_.part + pieces - 1) / pieces + 15) / 16 * 16;
    if (piece_ > kRound) piece_ = kRound;
  }

  __device__ __forceinline__ void run() {
    std::uint32_t meeting = count_of(fabric_.counters->meetings);
    const std::uint32_t first = count_of(fabric_.counters->rounds);
    const auto pieces = static_cast<std::uint32_t>((parts_.part + piece_ - 1) / piece_);
    const bool forwards = fabric_.ranks > 2;
    const std::uint32_t rounds = pieces + (forwards ? 1 : 0);
    const bool is_root = fabric_.rank == task_.root;
    for (std::uint32_t round = 0; round < rounds; ++round) {
      const std::uint32_t half = (first + round) & 1U;
      if (is_root && round < pieces) give(round * piece_, half);
      if (!is_root && forwards && round > 0) forward((round - 1) * piece_, half ^ 1U);
      meet(fabric_, ++meeting);
      if (is_root) continue;
      if (!forwards) take_own(round * piece_, half);
      if (forwards && round > 0) take_others((round - 1) * piece_, half ^ 1U);
    }
    leave(fabric_.counters->rounds, first + rounds);
    leave(fabric_.counters->meetings, meeting);
  }

 private:
  __device__ __forceinline__ std::size_t end_of(std::size_t begin, std::size_t bytes) const {
    return bytes < begin + piece_ ? bytes : begin + piece_;
  }
  /// Address of the line at offset `at` of a part. The area holds the piece that begins at offset
  /// `begin` of the part.
  __device__ __forceinline__ Line* place(int area, std::size_t offset, std::uint32_t half, int from,
                                         std::size_t begin, std::size_t at) const {
    return reinterpret_cast<Line*>(half_of(fabric_, area, offset, kRound, half, from) + at - begin);
  }

  __device__ __forceinline__ void give(std::size_t begin, std::uint32_t half) const {
    move_of_others(
        fabric_, begin, end_of(begin, parts_.part), [&](int peer) { return parts_.bytes_of(peer); },
        [&](int peer, std::size_t at) {
          return load(task_.in, parts_.begin_of(peer) + at, task_.bytes);
        },
        [&](int peer, std::size_t at, const Line& line) {
          *place(peer, fabric_.layout.received, half, fabric_.rank, begin, at) = line;
        });
  }

  /// Copies the current piece of this rank's part to the output, and calls also(at, line) for each
  /// of its lines.
  template <typename Also>
  __device__ __forceinline__ void take_own(std::size_t begin, std::uint32_t half,
                                           const Also& also) const {
    const int own = fabric_.rank;
    move_lines(
        begin + first_line(), end_of(begin, parts_.bytes_of(own)), all_lines(),
        [&](std::size_t at) {
          return *place(own, fabric_.layout.received, half, task_.root, begin, at);
        },
        [&](std::size_t at, const Line& line) {
          also(at, line);
          store(task_.out, parts_.begin_of(own) + at, task_.bytes, line);
        });
  }
  __device__ __forceinline__ void take_own(std::size_t begin, std::uint32_t half) const {
    take_own(begin, half, [](std::size_t, const Line&) {});
  }

  __device__ __forceinline__ void forward(std::size_t begin, std::uint32_t half) const {
    take_own(begin, half, [&](std::size_t at, const Line& line) {
      for_others(fabric_, [&](int, int peer) {
        if (peer == task_.root) return;
        *place(peer, fabric_.layout.results, half, fabric_.rank, begin, at) = line;
      });
    });
  }

  __device__ __forceinline__ void take_others(std::size_t begin, std::uint32_t half) const {
    move_of_others(
        fabric_, begin, end_of(begin, parts_.part),
        [&](int peer) { return peer == task_.root ? 0 : parts_.bytes_of(peer); },
        [&](int peer, std::size_t at) {
          return *place(fabric_.rank, fabric_.layout.results, half, peer, begin, at);
        },
        [&](int peer, std::size_t at, const Line& line) {
          store(task_.out, parts_.begin_of(peer) + at, task_.bytes, line);
        });
  }

  const Fabric& fabric_;
  const KernelArguments& task_;
  const BroadcastParts parts_;
  std::size_t piece_;  ///< Bytes of each part in a round.
};

__device__ __forceinline__ void broadcast(const Fabric& fabric, const KernelArguments& task) {
  Broadcast(fabric, task).run();
}

/// Offset of the token in the data that a rank sends in a flagged call. The data of a broadcast end
/// before this offset.
constexpr std::size_t kToken = kMostFlagged - 16;

__device__ __forceinline__ void flagged_broadcast(const Fabric& fabric,
                                                  const KernelArguments& task) {
  constexpr std::size_t kForwarded = kMostFlagged / 2;
  const std::uint32_t number = count_of(fabric.counters->flagged) + 1;
  const std::uint32_t half = number & 1U;
  const BroadcastParts parts(fabric, task);
  const int own = fabric.rank;
  const int root = task.root;
  const int token_of = static_cast<int>(threadIdx.x);
  const bool has_token = blockIdx.x == 0 && token_of < fabric.ranks && token_of != own;
  if (has_token) give_flagged(fabric, token_of, half, kToken, {}, number);
  if (task.bytes * (fabric.ranks - 1) <= kMostSentWhole) {
    for (std::size_t at = first_line(); at < task.bytes; at += all_lines()) {
      if (own == root) {
        const Line line = load(task.in, at, task.bytes);
        for_others(fabric,
                   [&](int, int peer) { give_flagged(fabric, peer, half, at, line, number); });
      } else {
        store(task.out, at, task.bytes, take_flagged(fabric, root, half, at, number));
      }
    }
  } else if (own == root) {
    for (std::size_t at = first_line(); at < parts.part; at += all_lines()) {
      Line lines[kMostRanks];
      for_others(fabric, [&](int step, int peer) {
        lines[step] = load(task.in, parts.begin_of(peer) + at, task.bytes);
      });
      for_others(fabric, [&](int step, int peer) {
        if (at < parts.bytes_of(peer)) give_flagged(fabric, peer, half, at, lines[step], number);
      });
    }
  } else {
    for (std::size_t at = first_line(); at < parts.bytes_of(own); at += all_lines()) {
      const Line line = take_flagged(fabric, root, half, at, number);
      for_others(fabric, [&](int, int peer) {
        if (peer != root) give_flagged(fabric, peer, half, kForwarded + at, line, number);
      });
      store(task.out, parts.begin_of(own) + at, task.bytes, line);
    }
    for (std::size_t at = first_line(); at < parts.part; at += all_lines()) {
      Line lines[kMostRanks];
      const auto is_wanted = [&](int peer) { return peer != root && at < parts.bytes_of(peer); };
      take_flagged_of_others(fabric, half, kForwarded + at, number, is_wanted, lines);
      for_wanted(fabric, is_wanted, [&](int peer) {
        store(task.out, parts.begin_of(peer) + at, task.bytes, lines[peer]);
      });
    }
  }
  if (has_token) take_flagged(fabric, token_of, half, kToken, number);
  leave(fabric.counters->flagged, number);
}

}  // namespace
}  // namespace mccl::kernels::cuda
