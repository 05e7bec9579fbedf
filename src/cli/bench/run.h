// The ranks of a run of `mccl bench`: how the ranks start, and what each rank does.
#pragma once

#include <string>
#include <vector>

#include "cli/bench/routine.h"
#include "mccl/context.h"

namespace mccl::cli::bench {

/// Measures the calls that `options` describe. Rank 0 prints the results and writes the files, then
/// throws Error if elements were wrong or if the requested algorithm does not support a call.
void run_rank(Context& context, const Options& options, bool one_host);

/// Runs this program with `arguments` in `ranks` processes of this machine, each bound to one core
/// if there are enough cores. The processes inherit the standard output and error of this process.
/// `command` begins each message of the launcher. Returns 0, or 1 if a rank failed. If a signal to
/// this process ends the job, the same signal then kills this process.
int run_here(int ranks, const std::string& command, const std::vector<std::string>& arguments);

}  // namespace mccl::cli::bench
