// Packed calls send lines of 128 bytes, each with one flag and 120 bytes of data. So they send few
// bytes in addition to the data, and need no barrier.
//
// A warp writes whole lines at a time. Eight adjacent lanes write each line, and memory handles
// this as one write. So a reader that sees the flag of a line has read all of the line. This holds
// inside a GPU and through NVLink, where NCCL relies on it as well (its LL128). PCIe does not
// guarantee it.
//
// The two halves of the area (StagingLayout::packed) are used in turn, as in flagged.cuh. Packed
// and flagged calls share the counters Counters::flagged.
#pragma once

#include "kernels/cuda/block.cuh"
#include "kernels/cuda/packed_line.h"

namespace mccl::kernels::cuda {
namespace {

struct Words {
  std::uint64_t first;
  std::uint64_t second;
};

constexpr unsigned kAllLanes = 0xffffffffU;

__device__ __forceinline__ int lane_of_thread() { return static_cast<int>(threadIdx.x % kLanes); }

/// Collects the words at the positions `a` and `b` from the lanes that hold them.
__device__ __forceinline__ Words gather_words(const Words& own, WordPlace a, WordPlace b) {
  const std::uint64_t a_first = __shfl_sync(kAllLanes, own.first, a.lane);
  const std::uint64_t a_second = __shfl_sync(kAllLanes, own.second, a.lane);
  const std::uint64_t b_first = __shfl_sync(kAllLanes, own.first, b.lane);
  const std::uint64_t b_second = __shfl_sync(kAllLanes, own.second, b.lane);
  return {a.second ? a_second : a_first, b.second ? b_second : b_first};
}

__device__ __forceinline__ Words words_of(const Line& line) {
  return {line.words[0] | static_cast<std::uint64_t>(line.words[1]) << 32,
          line.words[2] | static_cast<std::uint64_t>(line.words[3]) << 32};
}

__device__ __forceinline__ Line line_of(const Words& words) {
  return {{static_cast<std::uint32_t>(words.first), static_cast<std::uint32_t>(words.first >> 32),
           static_cast<std::uint32_t>(words.second),
           static_cast<std::uint32_t>(words.second >> 32)}};
}

__device__ __forceinline__ std::uint64_t flag_of(std::uint32_t number) {
  return number | static_cast<std::uint64_t>(number) << 32;
}

/// Must be called by a whole warp. Sends the warp's 480 bytes of data to `peer`, as piece number
/// `piece` of this call.
__device__ __forceinline__ void give_packed(const Fabric& fabric, int peer, std::uint32_t half,
                                            std::size_t piece, const Line& line,
                                            std::uint32_t number) {
  const int lane = lane_of_thread();
  Words words = gather_words(words_of(line), in_data(lane, false), in_data(lane, true));
  if (has_flag(lane)) words.second = flag_of(number);
  std::byte* const to =
      half_of(fabric, peer, fabric.layout.packed, kPackedArea, half, fabric.rank) +
      piece * kBytesOfWarp + lane * 16;
  store_by_warp(to, line_of(words));
}

/// Must be called by a whole warp. Waits for a piece from each rank for which `is_wanted(peer)` is
/// true. The loads from all ranks are in flight together. `lines` is indexed by rank.
template <typename Wanted>
__device__ __forceinline__ void take_packed_of_others(const Fabric& fabric, std::uint32_t half,
                                                      std::size_t piece, std::uint32_t number,
                                                      const Wanted& is_wanted, Line* lines) {
  const int lane = lane_of_thread();
  const std::uint64_t flag = flag_of(number);
  Words words[kMostRanks];
  Patience patience(fabric);
  int missing = -1;
  do {
    missing = -1;
    for_wanted(fabric, is_wanted, [&](int peer) {
      const std::byte* const from =
          half_of(fabric, fabric.rank, fabric.layout.packed, kPackedArea, half, peer) +
          piece * kBytesOfWarp + lane * 16;
      words[peer] = words_of(load_by_warp(from));
    });
    for_wanted(fabric, is_wanted, [&](int peer) {
      if (has_flag(lane) && words[peer].second != flag) missing = peer;
    });
    missing = __reduce_max_sync(kAllLanes, missing);
  } while (missing >= 0 && __all_sync(kAllLanes, patience.lasts(missing)));
  for_wanted(fabric, is_wanted, [&](int peer) {
    lines[peer] = line_of(gather_words(words[peer], in_lines(lane, false), in_lines(lane, true)));
  });
}

/// Numbers of the 480-byte pieces of a buffer that this warp handles: every `stride`-th number from
/// `first` on, below `end`.
struct Pieces {
  __device__ __forceinline__ explicit Pieces(std::size_t bytes)
      : first((blockIdx.x * blockDim.x + threadIdx.x) / kLanes),
        stride(gridDim.x * blockDim.x / kLanes),
        end((bytes + kDataOfWarp - 1) / kDataOfWarp) {}

  std::size_t first;
  std::size_t stride;
  std::size_t end;
};

/// Loads this lane's share of a piece: 16 bytes on the data lanes, and nothing on other lanes.
__device__ __forceinline__ Line load_piece(const std::byte* from, std::size_t piece,
                                           std::size_t bytes) {
  const int lane = lane_of_thread();
  if (lane >= kDataLanes) return {};
  return load(from, piece * kDataOfWarp + lane * 16, bytes);
}

__device__ __forceinline__ void store_piece(std::byte* to, std::size_t piece, std::size_t bytes,
                                            const Line& line) {
  const int lane = lane_of_thread();
  if (lane < kDataLanes) store(to, piece * kDataOfWarp + lane * 16, bytes, line);
}

/// Sums the pieces with the number `piece` of all ranks. `own` is the piece of this rank.
template <typename T>
__device__ __forceinline__ Line sum_packed(const Fabric& fabric, std::uint32_t half,
                                           std::size_t piece, const Line& own, std::uint32_t number,
                                           float divisor) {
  Line lines[kMostRanks];
  take_packed_of_others(
      fabric, half, piece, number, [](int) { return true; }, lines);
  return sum_of_ranks<T>(fabric, own, lines).round(divisor);
}

/// Computes the whole sum on every rank.
template <typename T>
__device__ __forceinline__ void packed(const Fabric& fabric, const KernelArguments& task) {
  const std::uint32_t number = count_of(fabric.counters->flagged) + 1;
  const std::uint32_t half = number & 1U;
  const Pieces pieces(task.bytes);
  for (std::size_t piece = pieces.first; piece < pieces.end; piece += pieces.stride) {
    const Line own = load_piece(task.in, piece, task.bytes);
    for_others(fabric, [&](int, int peer) { give_packed(fabric, peer, half, piece, own, number); });
  }
  for (std::size_t piece = pieces.first; piece < pieces.end; piece += pieces.stride) {
    const Line own = load_piece(task.in, piece, task.bytes);
    store_piece(task.out, piece, task.bytes,
                sum_packed<T>(fabric, half, piece, own, number, task.divisor));
  }
  leave(fabric.counters->flagged, number);
}

/// Computes one part of the sum on each rank, which sends the part to all other ranks.
template <typename T>
__device__ __forceinline__ void packed_parts(const Fabric& fabric, const KernelArguments& task) {
  // Number of the first piece that holds sums. The pieces before it hold the data to be summed.
  constexpr std::size_t kResults = kPackedArea / kBytesOfWarp / 2;
  const std::uint32_t number = count_of(fabric.counters->flagged) + 1;
  const std::uint32_t half = number & 1U;
  const int own = fabric.rank;
  const LineParts parts(task.bytes, fabric.ranks);
  const Pieces pieces(parts.part);
  const auto has_piece = [&](int peer, std::size_t piece) {
    return piece * kDataOfWarp < parts.size_of(peer);
  };
  for (std::size_t piece = pieces.first; piece < pieces.end; piece += pieces.stride) {
    Line lines[kMostRanks];
    for_others(fabric, [&](int step, int peer) {
      lines[step] = load_piece(task.in + parts.part * peer, piece, parts.size_of(peer));
    });
    for_others(fabric, [&](int step, int peer) {
      if (has_piece(peer, piece)) give_packed(fabric, peer, half, piece, lines[step], number);
    });
  }
  const std::size_t bytes = parts.size_of(own);
  for (std::size_t piece = pieces.first; has_piece(own, piece); piece += pieces.stride) {
    const Line mine = load_piece(task.in + parts.part * own, piece, bytes);
    const Line result = sum_packed<T>(fabric, half, piece, mine, number, task.divisor);
    for_others(fabric, [&](int, int peer) {
      give_packed(fabric, peer, half, kResults + piece, result, number);
    });
    store_piece(task.out + parts.part * own, piece, bytes, result);
  }
  for (std::size_t piece = pieces.first; piece < pieces.end; piece += pieces.stride) {
    Line lines[kMostRanks];
    const auto is_wanted = [&](int peer) { return has_piece(peer, piece); };
    take_packed_of_others(fabric, half, kResults + piece, number, is_wanted, lines);
    for_wanted(fabric, is_wanted, [&](int peer) {
      store_piece(task.out + parts.part * peer, piece, parts.size_of(peer), lines[peer]);
    });
  }
  leave(fabric.counters->flagged, number);
}

}  // namespace
}  // namespace mccl::kernels::cuda
