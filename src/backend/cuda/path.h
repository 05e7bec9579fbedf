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
  refused,  ///< The ranks go through the host.
  nvlink,   ///< Treated as two GPUs joined by NVLink. For tests only.
  pcie,
};

/// Parses the setting `test_only_shared_gpu`.
SharedGpu shared_gpu_named(std::string_view name);

/// Makes the path of `group`, which needs one GPU per rank. The GPU of a rank is that of the first
/// call that takes this path. The ranks then meet through calls of `group` on host memory, and
/// agree on whether they reach each other's GPUs. If they do not, all go through the host, and the
/// reason is logged once through `notices`, which belong to the job. Throws InvalidArgument if
/// there is no CUDA.
std::shared_ptr<direct::Path> make_path(Group& group, std::chrono::milliseconds timeout, Log log,
                                        std::shared_ptr<direct::Notices> notices,
                                        SharedGpu shared = SharedGpu::refused);

}  // namespace mccl::cuda
