// Runs collectives on GPU memory through NCCL.
#pragma once

#include <memory>

#include "backend/direct/path.h"

namespace mccl::nccl {

/// Creates the path of a group. Each rank needs its own GPU. Messages, and calls with types or
/// operations that NCCL lacks, go through the host. If `encrypts` is true, NCCL is not used between
/// hosts, because NCCL does not encrypt. Throws InvalidArgument if NCCL is not available.
std::shared_ptr<direct::Path> make_path(const direct::PathOptions& options, bool encrypts);

}  // namespace mccl::nccl
