#include "backend/cuda/launch.h"

#include <algorithm>

namespace mccl::cuda {
namespace {

using kernels::cuda::kThreads;

constexpr const char* kKernelNames[kKernels] = {
    "mccl_flagged_sum",     "mccl_flagged_parts",
    "mccl_flagged_scatter", "mccl_packed_sum",
    "mccl_packed_parts",    "mccl_all_reduce",
    "mccl_reduce_scatter",  "mccl_pooled_reduce_scatter",
    "mccl_flagged_gather",  "mccl_flagged_broadcast",
    "mccl_all_gather",      "mccl_all_to_all",
    "mccl_broadcast",       "mccl_pooled_all_gather"};
constexpr const char* kSuffixes[kSummed] = {"_f32", "_f16", "_bf16"};

constexpr std::size_t kLeastThreads = 128;
/// Maximum number of 16-byte lines in a part (the data for one other rank) of a short call, which
/// has at most one block per multiprocessor. At this length, each thread moves about one line.
constexpr std::size_t kMostOfOneEach = std::size_t{64} << 10;

struct KernelChoice {
  Kernel kernel;
  std::size_t part;  ///< Bytes that a rank sends to each other rank.
};

KernelChoice way_of_all_reduce(std::size_t whole, std::size_t ranks, const KernelLimits& limits) {
  using kernels::cuda::kMostFlagged;
  using kernels::cuda::kMostPacked;
  const std::size_t part = (whole + ranks - 1) / ranks;
  const auto fits = [](std::size_t bytes, std::size_t room, std::size_t size, std::size_t limit) {
    return bytes <= room && size <= limit;
  };
  const std::size_t others = ranks - 1;
  if (fits(whole * others, kMostPacked, whole, limits.packed_sum)) {
    return {Kernel::packed_sum, whole};
  }
  if (fits(whole * others, kMostFlagged, whole, limits.flagged_sum)) {
    return {Kernel::flagged_sum, whole};
  }
  if (fits(part, kMostPacked / 2, whole, limits.packed_parts)) return {Kernel::packed_parts, part};
  if (fits(part, kMostFlagged / 2, whole, limits.flagged_parts)) {
    return {Kernel::flagged_parts, part};
  }
  return {Kernel::all_reduce, part};
}

KernelChoice way_of(const Request& r, std::size_t ranks, const KernelLimits& limits,
                    bool reaches_inputs) {
  using kernels::cuda::kMostFlagged;
  const std::size_t whole = std::max(r.in.bytes(), r.out.bytes());
  const std::size_t part = whole / ranks;
  switch (r.call.collective) {
    case Collective::all_reduce:
      return way_of_all_reduce(whole, ranks, limits);
    case Collective::reduce_scatter:
      if (part <= kMostFlagged && whole <= limits.flagged_scatter) {
        return {Kernel::flagged_scatter, part};
      }
      return {reaches_inputs && whole >= limits.pooled_scatter ? Kernel::pooled_reduce_scatter
                                                               : Kernel::reduce_scatter,
              part};
    case Collective::all_gather:
      if (part <= kMostFlagged && whole <= limits.flagged_gather) {
        return {Kernel::flagged_gather, part};
      }
      return {reaches_inputs && whole >= limits.pooled_gather ? Kernel::pooled_all_gather
                                                              : Kernel::all_gather,
              part};
    case Collective::all_to_all:
      return {Kernel::all_to_all, part};
    default: {
      const std::size_t most =
          std::min(limits.flagged_broadcast, kernels::cuda::kMostFlaggedBroadcast);
      return {whole <= most ? Kernel::flagged_broadcast : Kernel::broadcast,
              (whole + ranks - 2) / (ranks - 1)};
    }
  }
}

/// Number of 16-byte lines in a part; a thread moves one line at a time. In packed kernels, flags
/// take half of every eighth line.
std::size_t lines_of(const KernelChoice& way) {
  const bool packed = way.kernel == Kernel::packed_sum || way.kernel == Kernel::packed_parts;
  return packed ? (way.part + 119) / 120 * 8 : (way.part + 15) / 16;
}

}  // namespace

int place_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return 0;
    case DType::f16:
      return 1;
    case DType::bf16:
      return 2;
    default:
      return -1;
  }
}

std::string name_of(Kernel kernel, int place) {
  const char* const name = kKernelNames[static_cast<int>(kernel)];
  return sums(kernel) ? std::string(name) + kSuffixes[place] : name;
}

KernelLimits limits_of(int ranks) {
  constexpr std::size_t kKib = 1 << 10;
  constexpr std::size_t kMib = 1 << 20;
  constexpr std::size_t kNever = ~std::size_t{0};
  // The values are in the order of the members of KernelLimits.
  constexpr KernelLimits kOf2{512 * kKib, 128 * kKib, 4 * kMib,  1 * kMib, 8 * kKib,
                              512 * kKib, 128 * kKib, 16 * kMib, kNever};
  constexpr KernelLimits kOf4{256 * kKib, 128 * kKib, 4 * kMib, 256 * kKib, 8 * kKib,
                              64 * kKib,  512 * kKib, kNever,   kNever};
  constexpr KernelLimits kOfMore{256 * kKib, 32 * kKib,  0,      0,        1 * kKib,
                                 4 * kKib,   512 * kKib, kNever, 16 * kMib};
  return ranks == 2 ? kOf2 : ranks <= 4 ? kOf4 : kOfMore;
}

Launch launch_of(const Request& r, int ranks, const KernelLimits& limits, unsigned processors,
                 bool reaches_inputs) {
  const auto count = static_cast<std::size_t>(ranks);
  const KernelChoice way = way_of(r, count, limits, reaches_inputs);
  const bool of_parts = r.call.collective == Collective::reduce_scatter ||
                        r.call.collective == Collective::all_to_all;
  Launch launch;
  launch.kernel = way.kernel;
  launch.task = {static_cast<const std::byte*>(r.in.data), static_cast<std::byte*>(r.out.data),
                 of_parts ? way.part : r.in.bytes(),
                 r.call.kind == ReduceKind::avg ? static_cast<float>(ranks) : 1.0F, r.call.root};
  const std::size_t lines = std::max<std::size_t>(1, lines_of(way));
  // Fills all multiprocessors with small blocks before it adds threads to a block, so that the
  // loads in flight are spread over the GPU. Long calls of the collectives that training uses
  // occupy half of the multiprocessors, so that a model can compute meanwhile. This makes these
  // calls 2 to 5 % slower. Other long calls have two blocks per multiprocessor: one moves data
  // while the other waits for its peers.
  const bool is_long = lines > kMostOfOneEach;
  const bool is_of_training = r.call.collective == Collective::all_reduce ||
                              r.call.collective == Collective::reduce_scatter ||
                              r.call.collective == Collective::all_gather;
  const std::size_t usable = std::min(processors, kMostProcessors);
  const std::size_t most_blocks = !is_long         ? usable
                                  : is_of_training ? (usable + 1) / 2
                                                   : 2 * usable;
  const std::size_t most_threads = is_long && !is_of_training ? kThreads / 2 : kThreads;
  const std::size_t each = (lines + most_blocks - 1) / most_blocks;
  const std::size_t threads = std::min<std::size_t>(
      (std::max(each, std::min(lines, kLeastThreads)) + 31) / 32 * 32, most_threads);
  launch.threads = static_cast<unsigned>(threads);
  launch.blocks = static_cast<unsigned>(std::min((lines + threads - 1) / threads, most_blocks));
  return launch;
}

}  // namespace mccl::cuda
