// Chooses the kernel and the number of threads for a call: a pure function with the same result on
// all ranks.
#pragma once

#include <cstddef>
#include <string>

#include "backend/request.h"
#include "kernels/cuda/fabric.h"

namespace mccl::cuda {

/// The kernels, in the order of kKernelNames.
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
  flagged_gather,  // kernels from here on only move data
  all_gather,
  all_to_all,
  broadcast,
  pooled_all_gather,
  pooled_all_to_all,
  pooled_broadcast,
};
inline constexpr int kKernels = 16;
constexpr bool sums(Kernel kernel) { return kernel < Kernel::flagged_gather; }

/// kSummed is the number of element types that kernels can sum. place_of() returns the index of a
/// type: 0 for f32, 1 for f16, 2 for bf16, and -1 for all others.
inline constexpr int kSummed = 3;
int place_of(DType dtype);

/// Name of a kernel in the kernel image, such as "mccl_flagged_sum_bf16". `place` is a result of
/// place_of().
std::string name_of(Kernel kernel, int place);

/// Maximum sizes in bytes at which a kernel is the fastest. Limits with `to_all` apply to the total
/// that a rank sends, those with `part` to the bytes that it sends to each rank. Measured by
/// bench/gpu/sweep.py between two H200s (build/gpu.md).
struct Limits {
  std::size_t flagged_to_all = std::size_t{128} << 10;
  std::size_t packed_to_all = std::size_t{512} << 10;
  std::size_t flagged_part = std::size_t{256} << 10;
  std::size_t packed_part = std::size_t{1} << 20;

  /// Excludes the packed kernels, for GPUs on which a line of 128 bytes may arrive in pieces.
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

/// Returns the variant of `kernel` for data in memory that all ranks can access, or `kernel` itself
/// if there is none.
Kernel pooled(Kernel kernel);

/// Maximum number of multiprocessors that a launch uses, with two blocks on each.
inline constexpr unsigned kMostProcessors = kernels::cuda::kMostBlocks / 2;

/// Returns the launch for a call, which the kernels must support. `processors` is the number of
/// multiprocessors reserved for each rank, at least 1 and the same on all ranks. All blocks of a
/// launch fit on them at the same time. Otherwise waiting blocks could occupy the GPU and prevent
/// the start of the blocks that their peers wait for.
Launch launch_of(const Request& request, int ranks, const Limits& limits = {},
                 unsigned processors = kMostProcessors);

}  // namespace mccl::cuda
