// Which kernel does a call, with how many threads: a pure function, alike on all ranks.
#pragma once

#include <cstddef>
#include <string>

#include "backend/request.h"
#include "kernels/cuda/fabric.h"

namespace mccl::cuda {

/// In the order of kKernelNames.
enum class Kernel {
  flagged_sum,
  flagged_parts,
  flagged_scatter,
  packed_sum,
  packed_parts,
  all_reduce,
  reduce_scatter,
  pooled_all_reduce,
  pooled_reduce_scatter,
  flagged_gather,  // from here on data are only moved
  all_gather,
  all_to_all,
  broadcast,
  pooled_all_gather,
  pooled_all_to_all,
  pooled_broadcast,
};
inline constexpr int kKernels = 16;
constexpr bool sums(Kernel kernel) { return kernel < Kernel::flagged_gather; }

/// Types that are summed, in the order of their kernels: f32, f16, bf16. -1 for others.
inline constexpr int kSummed = 3;
int place_of(DType dtype);

/// As the image has it: "mccl_flagged_sum_bf16".
std::string name_of(Kernel kernel, int place);

/// Where one way becomes faster than another, in bytes; `to_all` of what a rank sends altogether,
/// `part` of what it sends each. As bench/gpu/sweep.py finds between two H200s.
struct Limits {
  std::size_t flagged_to_all = std::size_t{128} << 10;
  std::size_t packed_to_all = std::size_t{512} << 10;
  std::size_t flagged_part = std::size_t{256} << 10;
  std::size_t packed_part = std::size_t{1} << 20;

  /// For GPUs whose lines may come in pieces.
  Limits without_packed() const {
    Limits limits = *this;
    limits.packed_to_all = limits.packed_part = 0;
    return limits;
  }
};

struct Launch {
  Kernel kernel = Kernel::broadcast;
  unsigned blocks = 1;
  unsigned threads = 32;
  kernels::cuda::Task task{};
};

/// The kernel that does the same, where all ranks' data lie where the others reach them; itself
/// where there is none such.
Kernel pooled(Kernel kernel);

/// Multiprocessors that a full grid needs.
inline constexpr unsigned kMostProcessors = kernels::cuda::kMostBlocks / 2;

/// Of a call that the kernels know. `processors`, 1 or more: multiprocessors that every rank has to
/// itself, and the same number on all ranks. All blocks of a launch fit them at once, because a
/// block that waits for another rank must not keep the block that this rank waits for from
/// starting.
Launch launch_of(const Request& request, int ranks, const Limits& limits = {},
                 unsigned processors = kMostProcessors);

}  // namespace mccl::cuda
