// Runs collectives on GPU memory with MCCL's own kernels, between the GPUs of one host.
#pragma once

#include <chrono>
#include <memory>
#include <string_view>

#include "backend/direct/notices.h"
#include "backend/direct/path.h"
#include "base/log.h"

namespace mccl::cuda {

/// How ranks that share one GPU are treated.
enum class SharedGpu {
  refused,  ///< Their calls go through the host.
  nvlink,   ///< Treated as two GPUs joined by NVLink. For tests only.
  pcie,
};

/// Parses the setting `test_only_shared_gpu`.
SharedGpu shared_gpu_named(std::string_view name);

/// Creates the path of `group`, which needs one GPU per rank. A rank uses the GPU of the first call
/// that this path runs. In that call the ranks agree, by calls of `group` on host memory, whether
/// they can access each other's GPUs. If they cannot, all calls go through the host, and `notices`,
/// which belong to the job, log the reason once. Throws InvalidArgument if CUDA is not available.
std::shared_ptr<direct::Path> make_path(Group& group, std::chrono::milliseconds timeout, Log log,
                                        std::shared_ptr<direct::Notices> notices,
                                        SharedGpu shared = SharedGpu::refused);

}  // namespace mccl::cuda
