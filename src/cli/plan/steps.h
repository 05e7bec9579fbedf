// One rank's schedule, to be read.
#pragma once

#include <cstddef>
#include <string>

#include "schedule/schedule.h"

namespace mccl::cli::plan {

inline constexpr std::size_t kMostStepLines = 200;

/// A line for each step: its number, what it does, and the steps that it waits for. Cut after
/// kMostStepLines, with how many more there are.
std::string steps_text(const schedule::Schedule& schedule);

}  // namespace mccl::cli::plan
