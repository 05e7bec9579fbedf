// What this machine's memory and loopback can do, as a job measures it when it starts.
#pragma once

#include <optional>

#include "schedule/choose.h"

namespace mccl::cli::plan {

/// Starts a job of that many ranks here (2 at least) and asks what they agreed on. Call it while
/// the process has one thread. Empty when the job failed, and said so on stderr. Throws
/// InvalidArgument where the settings forbid it.
std::optional<schedule::Facts> measure(int ranks);

}  // namespace mccl::cli::plan
