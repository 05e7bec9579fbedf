#include "backend/cuda/launch.h"

#include <algorithm>

namespace mccl::cuda {
namespace {

using kernels::cuda::kThreads;

constexpr const char* kKernelNames[kKernels] = {
    "mccl_flagged_sum",     "mccl_flagged_parts",     "mccl_flagged_scatter",
    "mccl_packed_sum",      "mccl_packed_parts",      "mccl_all_reduce",
    "mccl_reduce_scatter",  "mccl_pooled_all_reduce", "mccl_pooled_reduce_scatter",
    "mccl_flagged_gather",  "mccl_all_gather",        "mccl_all_to_all",
    "mccl_broadcast",       "mccl_pooled_all_gather", "mccl_pooled_all_to_all",
    "mccl_pooled_broadcast"};
constexpr const char* kSuffixes[kSummed] = {"_f32", "_f16", "_bf16"};

constexpr std::size_t kLeastThreads = 128;
/// Maximum part, in lines of 16 bytes, that uses one block per multiprocessor, so that each thread
/// moves about one line.
constexpr std::size_t kMostOfOneEach = std::size_t{64} << 10;

struct Way {
  Kernel kernel;
  std::size_t part;  ///< Bytes that a rank sends to each other rank.
};

Way way_of_all_reduce(std::size_t whole, std::size_t ranks, const Limits& limits) {
  const std::size_t to_all = whole * (ranks - 1);
  const std::size_t part = (whole + ranks - 1) / ranks;
  const auto most = [](std::size_t limit, std::size_t room) { return std::min(limit, room); };
  using kernels::cuda::kMostFlagged;
  using kernels::cuda::kMostPacked;
  if (to_all <= most(limits.packed_to_all, kMostPacked)) return {Kernel::packed_sum, whole};
  if (to_all <= most(limits.flagged_to_all, kMostFlagged)) return {Kernel::flagged_sum, whole};
  if (part <= most(limits.packed_part, kMostPacked / 2)) return {Kernel::packed_parts, part};
  if (part <= most(limits.flagged_part, kMostFlagged / 2)) return {Kernel::flagged_parts, part};
  return {Kernel::all_reduce, part};
}

Way way_of(const Request& r, std::size_t ranks, const Limits& limits) {
  const std::size_t whole = r.in.bytes();
  const auto fits = [&](std::size_t part) {
    return part <= std::min(limits.flagged_part, kernels::cuda::kMostFlagged);
  };
  switch (r.call.collective) {
    case Collective::all_reduce:
      return way_of_all_reduce(whole, ranks, limits);
    case Collective::reduce_scatter:
      return {fits(r.out.bytes()) ? Kernel::flagged_scatter : Kernel::reduce_scatter,
              r.out.bytes()};
    case Collective::all_gather:
      return {fits(whole) ? Kernel::flagged_gather : Kernel::all_gather, whole};
    case Collective::all_to_all:
      return {Kernel::all_to_all, whole / ranks};
    default:
      return {Kernel::broadcast, whole};
  }
}

/// Number of 16-byte lines in a part; a thread moves one at a time. In packed kernels, a flag takes
/// half of every eighth line.
std::size_t lines_of(const Way& way) {
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

Kernel pooled(Kernel kernel) {
  switch (kernel) {
    case Kernel::all_reduce:
      return Kernel::pooled_all_reduce;
    case Kernel::reduce_scatter:
      return Kernel::pooled_reduce_scatter;
    case Kernel::all_gather:
      return Kernel::pooled_all_gather;
    case Kernel::all_to_all:
      return Kernel::pooled_all_to_all;
    case Kernel::broadcast:
      return Kernel::pooled_broadcast;
    default:
      return kernel;
  }
}

Launch launch_of(const Request& r, int ranks, const Limits& limits, unsigned processors) {
  const auto count = static_cast<std::size_t>(ranks);
  const Way way = way_of(r, count, limits);
  const bool of_parts = r.call.collective == Collective::reduce_scatter ||
                        r.call.collective == Collective::all_to_all;
  Launch launch;
  launch.kernel = way.kernel;
  launch.task = {static_cast<const std::byte*>(r.in.data), static_cast<std::byte*>(r.out.data),
                 of_parts ? way.part : r.in.bytes(),
                 r.call.kind == ReduceKind::avg ? static_cast<float>(ranks) : 1.0F, r.call.root};
  const std::size_t lines = std::max<std::size_t>(1, lines_of(way));
  // Fills all multiprocessors with small blocks before it adds threads to a block, which spreads
  // waiting loads over the GPU. Long calls have two blocks per multiprocessor: one moves data while
  // the other waits for its peers.
  const bool is_long = lines > kMostOfOneEach;
  const std::size_t usable = std::min(processors, kMostProcessors);
  const std::size_t most_blocks = is_long ? 2 * usable : usable;
  const std::size_t most_threads = is_long ? kThreads / 2 : kThreads;
  const std::size_t each = (lines + most_blocks - 1) / most_blocks;
  const std::size_t threads = std::min<std::size_t>(
      (std::max(each, std::min(lines, kLeastThreads)) + 31) / 32 * 32, most_threads);
  launch.threads = static_cast<unsigned>(threads);
  launch.blocks = static_cast<unsigned>(std::min((lines + threads - 1) / threads, most_blocks));
  return launch;
}

}  // namespace mccl::cuda
