// How the verifier reports what it finds.
#pragma once

#include <string>

#include "schedule/schedule.h"

namespace mccl::schedule {

/// Thrown inside the verifier. verify() catches it and returns the text.
struct Defect {
  std::string text;
};

/// Throws a Defect that names the rank and the step.
[[noreturn]] void fail(const Problem& problem, const Schedule& schedule, std::size_t step,
                       const std::string& what);

/// Checks one rank's schedule by itself. The schedule must be well formed, stay inside its memories
/// and write no input. Its waits must order every two steps that access the same memory, if one of
/// them writes it.
void check_steps(const Problem& problem, const Schedule& schedule);

}  // namespace mccl::schedule
