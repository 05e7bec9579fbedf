// Runs collectives on GPU memory through NCCL.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "backend/direct/notices.h"
#include "backend/direct/path.h"
#include "base/log.h"

namespace mccl::nccl {

/// Creates the path of `group`, which needs one GPU per rank. A rank uses the GPU of the first call
/// that this path runs. In that call the ranks connect, by calls of `group` on host memory.
/// Messages, and types and operations that NCCL lacks, go through the host. `notices` belong to the
/// job. If `encrypts`, NCCL is not used between hosts, because it does not encrypt. Throws
/// InvalidArgument if NCCL is not available.
std::shared_ptr<direct::Path> make_path(Group& group, std::chrono::milliseconds timeout, Log log,
                                        std::shared_ptr<direct::Notices> notices, bool encrypts);

}  // namespace mccl::nccl
