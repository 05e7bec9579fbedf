// Runs collectives on GPU memory through NCCL.
#pragma once

#include <memory>

#include "backend/direct/path.h"

namespace mccl::nccl {

/// Creates the path of a group, which needs one GPU per rank. Messages, and types and operations
/// that NCCL lacks, go through the host. If `encrypts`, NCCL is not used between hosts, because it
/// does not encrypt. Throws InvalidArgument if NCCL is not available.
std::shared_ptr<direct::Path> make_path(const direct::PathOptions& options, bool encrypts);

}  // namespace mccl::nccl
