// Collectives by kernels that write into each other's GPU.
//
// flagged: each rank writes its data to all others, in 16 bytes of which every other word is the
// number of the call: who reads data and number together needs no other word that they are there.
// The least time, twice the bytes. Halves of the area are used in turn: a rank writes a half again
// two calls later, and has heard in the call between from every other, so that they have left the
// first. Small sums are made by every rank of everything. Larger ones are made by one rank for each
// part, which sends them back in the same way.
//
// staged: in rounds, and each block by itself for its share of them:
//   give     what another needs of this rank goes into its `received`;
//   meet     the blocks of that number, of all ranks, wait for each other;
//   take     what has come is summed, or copied out;
//   and for an all_reduce: sums go into the others' `results`, meet, copy them out.
// A half is given into again two rounds later. By then the block has met its like in the round
// between, after which nobody reads the first round's data; and from one kernel to the next, who
// has met a block of the next kernel knows that the whole one before is over, as kernels of a
// stream are.
//
// meet: the barrier. A block's threads come together; then thread r writes the number of the
// meeting into rank r's word for (block, this rank), with a release that covers what the block has
// written, and waits with acquires until rank r has written as much here. Numbers only grow, and
// are compared as distances, so that they may go around. Who waits too long, or is told to stop,
// goes on: the host then says that the results are of no use.
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

/// Whether to wait on for `rank`; looks at the clock and the alarm now and then.
class Patience {
 public:
  __device__ __forceinline__ explicit Patience(const Fabric& fabric, int rank)
      : fabric_(fabric), rank_(rank) {}
  __device__ __forceinline__ bool lasts() {
    if (++looks_ % 4096 != 0) return true;
    const std::uint64_t now = now_ns();
    if (since_ == 0) since_ = now;
    if (fabric_.alarm->stop != 0) return false;
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

/// The last block of a kernel counts what all have read.
__device__ __forceinline__ void leave(const Fabric& fabric, std::uint32_t meetings,
                                      std::uint32_t flagged) {
  __syncthreads();
  if (threadIdx.x != 0) return;
  __threadfence();
  if (atomicAdd(&fabric.counters->finished, 1U) + 1 != gridDim.x) return;
  fabric.counters->finished = 0;
  fabric.counters->meetings = meetings;
  fabric.counters->flagged = flagged;
}

__device__ __forceinline__ std::uint32_t count_of(const std::uint32_t* counter) {
  return *const_cast<const volatile std::uint32_t*>(counter);
}

/// Sixteen bytes at `at` of `bytes`, wherever they lie; zeros beyond the end.
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

/// Sums for types that have some; the rest only move.
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

/// Eight bytes of data with the call's number beside each word.
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

/// `at`: of the data, counted from the beginning of what the rank sends in this call.
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

/// Of what all ranks have sent at one place, `own` among them.
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

/// Every rank's data to every rank: summed, or side by side.
template <typename T, bool kSums>
__device__ __forceinline__ void flagged(const Fabric& fabric, const Task& task) {
  const std::uint32_t number = count_of(&fabric.counters->flagged) + 1;
  const std::uint32_t half = number & 1U;
  const std::size_t stride = std::size_t{16} * gridDim.x * blockDim.x;
  const std::size_t first = std::size_t{16} * (blockIdx.x * blockDim.x + threadIdx.x);
  for (std::size_t at = first; at < task.bytes; at += stride) {
    const Line own = load(task.in, at, task.bytes);
    for (int step = 1; step < fabric.ranks; ++step) {
      give_flagged(fabric, (fabric.rank + step) % fabric.ranks, half, at, own, number);
    }
    if (kSums) {
      store(task.out, at, task.bytes, sum_flagged<T>(fabric, half, at, own, number, task.divisor));
      continue;
    }
    for (int peer = 0; peer < fabric.ranks; ++peer) {
      store(task.out + peer * task.bytes, at, task.bytes,
            peer == fabric.rank ? own : take_flagged(fabric, peer, half, at, number));
    }
  }
  leave(fabric, count_of(&fabric.counters->meetings), number);
}

/// Sums of a part for each rank, which an all_reduce sends back.
template <typename T, bool kSendsBack>
__device__ __forceinline__ void flagged_parts(const Fabric& fabric, const Task& task) {
  const std::uint32_t number = count_of(&fabric.counters->flagged) + 1;
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
  leave(fabric, count_of(&fabric.counters->meetings), number);
}

/// Copies lines from `begin` on, several on their way at a time.
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

template <typename T, Shape kShape>
__device__ __forceinline__ void staged(const Fabric& fabric, const Task& task) {
  constexpr bool kSums = kShape == Shape::all_reduce || kShape == Shape::reduce_scatter;
  constexpr bool kDivided = kSums || kShape == Shape::all_to_all;
  const int own = fabric.rank;
  // Of an all_reduce the whole is cut into a part for each rank, at lines; of all others `bytes` is
  // the part.
  const std::size_t lines = (task.bytes + 15) / 16;
  const std::size_t part =
      kShape == Shape::all_reduce ? (lines + fabric.ranks - 1) / fabric.ranks * 16 : task.bytes;
  std::uint32_t meeting = count_of(&fabric.counters->meetings);
  std::uint32_t round = 0;
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
  leave(fabric, meeting, count_of(&fabric.counters->flagged));
}

}  // namespace
}  // namespace mccl::kernels::cuda

using namespace mccl::kernels::cuda;

#define MCCL_KERNEL(name, body)                                                        \
  extern "C" __global__ void __launch_bounds__(kThreads)                               \
      name(const __grid_constant__ Fabric fabric, const __grid_constant__ Task task) { \
    body(fabric, task);                                                                \
  }

MCCL_KERNEL(mccl_flagged_sum_f32, (flagged<F32, true>))
MCCL_KERNEL(mccl_flagged_sum_f16, (flagged<F16, true>))
MCCL_KERNEL(mccl_flagged_sum_bf16, (flagged<Bf16, true>))
MCCL_KERNEL(mccl_flagged_parts_f32, (flagged_parts<F32, true>))
MCCL_KERNEL(mccl_flagged_parts_f16, (flagged_parts<F16, true>))
MCCL_KERNEL(mccl_flagged_parts_bf16, (flagged_parts<Bf16, true>))
MCCL_KERNEL(mccl_flagged_scatter_f32, (flagged_parts<F32, false>))
MCCL_KERNEL(mccl_flagged_scatter_f16, (flagged_parts<F16, false>))
MCCL_KERNEL(mccl_flagged_scatter_bf16, (flagged_parts<Bf16, false>))
MCCL_KERNEL(mccl_flagged_gather, (flagged<F32, false>))
MCCL_KERNEL(mccl_all_reduce_f32, (staged<F32, Shape::all_reduce>))
MCCL_KERNEL(mccl_all_reduce_f16, (staged<F16, Shape::all_reduce>))
MCCL_KERNEL(mccl_all_reduce_bf16, (staged<Bf16, Shape::all_reduce>))
MCCL_KERNEL(mccl_reduce_scatter_f32, (staged<F32, Shape::reduce_scatter>))
MCCL_KERNEL(mccl_reduce_scatter_f16, (staged<F16, Shape::reduce_scatter>))
MCCL_KERNEL(mccl_reduce_scatter_bf16, (staged<Bf16, Shape::reduce_scatter>))
MCCL_KERNEL(mccl_all_gather, (staged<F32, Shape::all_gather>))
MCCL_KERNEL(mccl_all_to_all, (staged<F32, Shape::all_to_all>))
MCCL_KERNEL(mccl_broadcast, (staged<F32, Shape::broadcast>))
