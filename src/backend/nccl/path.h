// Collectives on GPU memory by NCCL.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "backend/direct/notices.h"
#include "backend/direct/path.h"
#include "base/log.h"

namespace mccl::nccl {

/// A group of one GPU for each rank, which they are the first time that a call takes this path: the
/// ranks then meet by a broadcast of `group`. Messages, and what NCCL has no type or operation for,
/// go the other way. Throws InvalidArgument where there is no NCCL.
/// `notices`: of the job.
std::shared_ptr<direct::Path> make_path(Group& group, std::chrono::milliseconds timeout, Log log,
                                        std::shared_ptr<direct::Notices> notices);

}  // namespace mccl::nccl
