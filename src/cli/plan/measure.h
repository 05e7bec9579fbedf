// Measures this machine's memory and loopback as a job does when it starts.
#pragma once

#include <optional>

#include "schedule/choose.h"

namespace mccl::cli::plan {

/// Starts a job of `ranks` ranks (at least 2) here and returns the facts that its ranks measured
/// and agreed on. Must be called while the process has one thread. Returns nothing if the job
/// failed; it has printed the reason to stderr. Throws InvalidArgument if the settings forbid
/// measuring.
std::optional<schedule::Facts> measure(int ranks);

}  // namespace mccl::cli::plan
