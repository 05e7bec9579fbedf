// The real verbs: libibverbs (Linux) or librdma (macOS), loaded at run time.
#pragma once

#include <memory>
#include <string>

#include "transport/rdma/verbs.h"

namespace mccl::transport::rdma {

/// Loaded once, and for as long as the process lives. Null where the library is missing, or lacks
/// what MCCL needs: `why` then says which.
std::shared_ptr<Verbs> load_verbs(std::string& why);

}  // namespace mccl::transport::rdma
