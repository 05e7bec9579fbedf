// Finds which steps must wait for which, based on the memory that they touch.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "schedule/layout.h"
#include "schedule/schedule.h"

namespace mccl::schedule {

/// True for steps that read input, output, scratch or blocks. Accesses to the window have rules of
/// their own, and do not count here. writes_memory() is the same for writes.
constexpr bool reads_memory(StepKind kind) {
  return kind != StepKind::recv && kind != StepKind::arrive && kind != StepKind::await &&
         kind != StepKind::read;
}
constexpr bool writes_memory(StepKind kind) {
  return kind != StepKind::send && kind != StepKind::arrive && kind != StepKind::await &&
         kind != StepKind::publish;
}

/// Adds an (earlier, later) pair to `waits` for each hazard that the others do not imply. The
/// memory is divided wherever a region begins or ends. Each interval records its last writer and
/// the readers since then. The time is proportional to the number of intervals in all regions
/// together.
void find_hazards(const Layout& layout, std::span<const Step> steps,
                  std::vector<std::pair<std::uint32_t, std::uint32_t>>& waits);

/// Fills in the schedule's waits and successors. Duplicate pairs count once.
void link_waits(std::vector<std::pair<std::uint32_t, std::uint32_t>>& waits, Schedule& schedule);

}  // namespace mccl::schedule
