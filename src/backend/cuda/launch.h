// Chooses the kernel, the blocks and the threads for a call. The choice depends only on values that
// are the same on all ranks, so all ranks choose the same.
#pragma once

#include <cstddef>
#include <string>

#include "backend/request.h"
#include "kernels/cuda/fabric.h"

namespace mccl::cuda {

/// The kernels, in the order of the names in kKernelNames (launch.cpp).
enum class Kernel {
  flagged_sum,
  flagged_parts,
  flagged_scatter,
  packed_sum,
  packed_parts,
  all_reduce,
  reduce_scatter,
  pooled_reduce_scatter,
  flagged_gather,  // kernels from here on only move data
  flagged_broadcast,
  all_gather,
  all_to_all,
  broadcast,
  pooled_all_gather,
};
inline constexpr int kKernels = 14;
constexpr bool sums(Kernel kernel) { return kernel < Kernel::flagged_gather; }

/// kSummed is the number of element types that kernels can sum. place_of() returns the index of a
/// type: 0 for f32, 1 for f16, 2 for bf16, and -1 for all others.
inline constexpr int kSummed = 3;
int place_of(DType dtype);

/// Name of a kernel in the kernel image, such as "mccl_flagged_sum_bf16". `place` is a result of
/// place_of().
std::string name_of(Kernel kernel, int place);

/// Sizes of calls, in bytes of the longer buffer, with which launch_of() chooses a kernel. Each
/// member except the last two is the maximum size at which the kernel of the same name is the
/// fastest.
struct KernelLimits {
  std::size_t packed_sum;
  std::size_t flagged_sum;
  std::size_t packed_parts;
  std::size_t flagged_parts;
  std::size_t flagged_scatter;
  std::size_t flagged_gather;
  std::size_t flagged_broadcast;
  /// Minimum sizes at which kernels that read inputs in windows are faster than kernels that copy.
  std::size_t pooled_scatter;
  std::size_t pooled_gather;

  /// Returns limits that exclude the packed kernels, for GPUs on which a packed line may arrive in
  /// pieces.
  KernelLimits without_packed() const {
    KernelLimits limits = *this;
    limits.packed_sum = limits.packed_parts = 0;
    return limits;
  }
};

/// Limits for a number of ranks from 2 to 8, measured by bench/gpu/sweep.py on 2, 4 and 8 H200s
/// that are joined by NVLink.
KernelLimits limits_of(int ranks);

struct Launch {
  Kernel kernel = Kernel::broadcast;
  unsigned blocks = 1;
  unsigned threads = 32;
  kernels::cuda::KernelArguments task{};
};

/// Maximum number of multiprocessors that a launch uses, with two blocks on each.
inline constexpr unsigned kMostProcessors = kernels::cuda::kMostBlocks / 2;

/// Returns the launch for a call, which the kernels must support. `processors` is the number of
/// multiprocessors reserved for each rank, at least 1 and the same on all ranks. All blocks of a
/// launch fit on these multiprocessors at the same time. Otherwise waiting blocks could occupy the
/// GPU and prevent the start of the blocks that their peers wait for. `reaches_inputs`: true if all
/// ranks share windows, so that kernels can read inputs in them directly.
Launch launch_of(const Request& request, int ranks, const KernelLimits& limits,
                 unsigned processors = kMostProcessors, bool reaches_inputs = false);

}  // namespace mccl::cuda
