// How long launcher and host wait while no message arrives from the other.
#pragma once

#include <chrono>
#include <optional>

#include "cli/launch/job.h"

namespace mccl::cli::launch {

/// Returns a limit above the liveness interval of the job's ranks, which the variables of rank 0
/// give. An outage that the ranks survive must not end the job. If `asked` (in seconds) is not set,
/// the limit is twice that interval and at least 5 s longer. TCP doubles its pauses during an
/// outage, so data may be late by twice the length of the outage. Throws InvalidArgument if `asked`
/// is too short.
std::chrono::seconds silence_of(const Job& job, const Variables& inherited,
                                const std::optional<int>& asked);

}  // namespace mccl::cli::launch
