// How long launcher and host bear it when no word passes between them.
#pragma once

#include <chrono>
#include <optional>

#include "cli/launch/job.h"

namespace mccl::cli::launch {

/// Longer than the liveness interval of the job's ranks, which the variables of rank 0 give: what
/// the ranks bear must not end the job. Without a wish (`asked`, in seconds) it is twice that
/// interval and at least 5 s more. TCP doubles its pauses while a network is down, so bytes may be
/// late by twice the time that it was down. Throws InvalidArgument for a wish that is too short.
std::chrono::seconds silence_of(const Job& job, const Variables& inherited,
                                const std::optional<int>& asked);

}  // namespace mccl::cli::launch
