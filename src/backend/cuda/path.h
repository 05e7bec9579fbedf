// Collectives on GPU memory by kernels of our own, between the GPUs of one host.
#pragma once

#include <chrono>
#include <memory>
#include <string_view>

#include "backend/direct/notices.h"
#include "backend/direct/path.h"
#include "base/log.h"

namespace mccl::cuda {

/// What GPUs count as between ranks that share one.
enum class SharedGpu {
  refused,  ///< The ranks go through the host.
  nvlink,   ///< As two GPUs joined by NVLink. For tests only, as is the next.
  pcie,
};

/// Of the setting `test_only_shared_gpu`.
SharedGpu shared_gpu_named(std::string_view name);

/// A group of one GPU for each rank, which they are the first time that a call takes this path: the
/// ranks then meet by calls of `group` on host memory, and agree whether they reach each other's
/// GPUs. Where they do not, all go through the host, and say why once. Throws InvalidArgument where
/// there is no CUDA.
/// `notices`: of the job.
std::shared_ptr<direct::Path> make_path(Group& group, std::chrono::milliseconds timeout, Log log,
                                        std::shared_ptr<direct::Notices> notices,
                                        SharedGpu shared = SharedGpu::refused);

}  // namespace mccl::cuda
