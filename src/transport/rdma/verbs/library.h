// The real verbs: libibverbs (Linux) or librdma (macOS), loaded at run time.
#pragma once

#include <memory>
#include <string>

#include "transport/rdma/verbs/verbs.h"

namespace mccl::transport::rdma {

/// Loads the library once, for the lifetime of the process. Returns null if the library is missing
/// or lacks a function that MCCL needs, with the reason in `why`.
std::shared_ptr<Verbs> load_verbs(std::string& why);

}  // namespace mccl::transport::rdma
