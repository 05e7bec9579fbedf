// Describes a job that is not started, for --dry-run and --print-env.
#pragma once

#include <string>

#include "cli/launch/run.h"

namespace mccl::cli::launch {

/// Returns what each rank would run and where, or only its variables if `commands` is false.
/// Secrets are masked.
std::string text_of(const Job& job, const RunOptions& options, bool commands);

/// Returns one line per variable. Secrets are masked.
std::string text_of(const Variables& variables);

}  // namespace mccl::cli::launch
