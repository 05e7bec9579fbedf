// Runs collectives on GPU memory with MCCL's own kernels, between the GPUs of one host.
#pragma once

#include <memory>
#include <string_view>

#include "backend/direct/path.h"

namespace mccl::cuda {

/// How calls of a group are carried out if some of its ranks share a GPU.
enum class SharedGpu {
  refused,  ///< The group's calls go through host memory.
  nvlink,   ///< Kernels run as if NVLink joined two GPUs. For tests only.
  pcie,     ///< Kernels run as if PCIe joined two GPUs. For tests only.
};

/// Parses the setting `test_only_shared_gpu`.
SharedGpu shared_gpu_named(std::string_view name);

/// Creates the path of a group. Each rank needs its own GPU. In the first call that this path
/// supports, the ranks find out whether they can access each other's GPUs. If they cannot, all
/// calls go through the host, and the reason is logged once. Throws InvalidArgument if CUDA is not
/// available.
std::shared_ptr<direct::Path> make_path(const direct::PathOptions& options,
                                        SharedGpu shared = SharedGpu::refused);

}  // namespace mccl::cuda
