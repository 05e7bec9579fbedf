// One rank's part in a run of `mccl bench`.
#pragma once

#include <memory>
#include <string>

#include "cli/bench/options.h"
#include "mccl/config.h"
#include "mccl/context.h"
#include "mccl/store.h"

namespace mccl::cli::bench {

/// Measures everything. Rank 0 prints and writes the files. Throws Error when elements were wrong,
/// after all else is done.
void run_rank(Context& context, const Options& options, bool one_host);

}  // namespace mccl::cli::bench
