// Runs collectives on GPU memory through NCCL.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "backend/direct/notices.h"
#include "backend/direct/path.h"
#include "base/log.h"

namespace mccl::nccl {

/// Makes the path of `group`, which needs one GPU per rank. The GPU of a rank is that of the first
/// call that takes this path. The ranks then meet through a broadcast of `group`. Messages, and
/// types and operations that NCCL lacks, go through the host. `notices` belong to the job. Throws
/// InvalidArgument if there is no NCCL.
std::shared_ptr<direct::Path> make_path(Group& group, std::chrono::milliseconds timeout, Log log,
                                        std::shared_ptr<direct::Notices> notices);

}  // namespace mccl::nccl
