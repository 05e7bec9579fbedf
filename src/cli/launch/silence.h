// Time limit after which launcher and host give each other up if no message arrives.
#pragma once

#include <chrono>
#include <optional>

#include "cli/launch/job.h"

namespace mccl::cli::launch {

/// Returns the limit: `asked` (in seconds) if it is set. It must exceed the liveness interval of
/// the ranks, which the variables of rank 0 give. An outage that the ranks survive must not end the
/// job. The default is twice that interval, and at least 5 s longer than it. TCP doubles its pauses
/// during an outage, so data may arrive only after twice the length of the outage. Throws
/// InvalidArgument if `asked` is too short.
std::chrono::seconds silence_of(const Job& job, const Variables& inherited,
                                const std::optional<int>& asked);

}  // namespace mccl::cli::launch
