// A job that is not started, told to people.
#pragma once

#include <string>

#include "cli/launch/run.h"

namespace mccl::cli::launch {

/// What each rank would run and where, or (`commands` is false) its variables alone. Secrets are
/// masked.
std::string text_of(const Job& job, const RunOptions& options, bool commands);

/// A line each. Secrets are masked.
std::string text_of(const Variables& variables);

}  // namespace mccl::cli::launch
