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

/// Number of element types that are summed. place_of() returns the type's index: f32, f16, bf16; -1
/// for all other types.
inline constexpr int kSummed = 3;
int place_of(DType dtype);

/// Name in the kernel image, such as "mccl_flagged_sum_bf16".
std::string name_of(Kernel kernel, int place);

/// Sizes in bytes up to which a kernel is the fastest. `to_all` limits the total that a rank sends,
/// `part` the bytes that it sends to each rank. Measured by bench/gpu/sweep.py between two H200s
/// (build/gpu.md).
struct Limits {
  std::size_t flagged_to_all = std::size_t{128} << 10;
  std::size_t packed_to_all = std::size_t{512} << 10;
  std::size_t flagged_part = std::size_t{256} << 10;
  std::size_t packed_part = std::size_t{1} << 20;

  /// Limits for GPUs on which a line of 128 bytes may arrive in pieces.
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

/// Returns the equivalent kernel for data in memory that all ranks reach. Returns `kernel` itself
/// if there is none.
Kernel pooled(Kernel kernel);

/// Multiprocessors that a full grid needs.
inline constexpr unsigned kMostProcessors = kernels::cuda::kMostBlocks / 2;

/// Requires a call that the kernels support. `processors`: multiprocessors that every rank has for
/// itself, at least 1 and the same on all ranks. All blocks of a launch fit on them at once.
/// Otherwise a block that waits for another rank could keep the block that this rank needs from
/// starting.
Launch launch_of(const Request& request, int ranks, const Limits& limits = {},
                 unsigned processors = kMostProcessors);

}  // namespace mccl::cuda
