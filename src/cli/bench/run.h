// One rank's part in a run of `mccl bench`.
#pragma once

#include <memory>
#include <string>

#include "cli/bench/options.h"
#include "mccl/config.h"
#include "mccl/context.h"
#include "mccl/store.h"

namespace mccl::cli::bench {

/// Measures everything. Rank 0 prints the results and writes the files. At the very end, throws
/// Error if elements were wrong, or if the requested algorithm could not do a call.
void run_rank(Context& context, const Options& options, bool one_host);

}  // namespace mccl::cli::bench
