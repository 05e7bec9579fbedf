// A whole job on this machine.
#pragma once

#include <functional>

#include "mccl/context.h"

namespace mccl::cli::bench {

/// Runs `body` on every rank of a job of `ranks` new processes, as run_local_ranks does. Returns
/// the exit status.
int run_local_job(int ranks, const char* who, Config config,
                  const std::function<void(Context&)>& body);

}  // namespace mccl::cli::bench
