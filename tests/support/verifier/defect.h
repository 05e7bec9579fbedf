// How the verifier reports what it finds.
#pragma once

#include <string>

#include "schedule/schedule.h"

namespace mccl::schedule {

/// Thrown inside the verifier; verify() returns the text.
struct Defect {
  std::string text;
};

/// Throws a Defect that names the rank and the step.
[[noreturn]] void fail(const Problem& problem, const Schedule& schedule, std::size_t step,
                       const std::string& what);

/// Checks one rank's schedule by itself: that it is well formed, stays inside its memories, writes
/// no input, and that its waits cover its hazards.
void check_steps(const Problem& problem, const Schedule& schedule);

}  // namespace mccl::schedule
