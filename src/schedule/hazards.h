// Which steps must wait for which, from the memory that they touch.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "schedule/layout.h"
#include "schedule/schedule.h"

namespace mccl::schedule {

/// Of input, output and scratch; windows have rules of their own.
constexpr bool reads_memory(StepKind kind) {
  return kind != StepKind::recv && kind != StepKind::arrive && kind != StepKind::await &&
         kind != StepKind::read;
}
constexpr bool writes_memory(StepKind kind) {
  return kind != StepKind::send && kind != StepKind::arrive && kind != StepKind::await &&
         kind != StepKind::publish;
}

/// Adds to `waits` an (earlier, later) pair for each hazard that others do not imply. The memory is
/// divided where any region begins or ends; each interval remembers who wrote it last and who has
/// read it since. The time is that of all regions' intervals together.
void find_hazards(const Layout& layout, std::span<const Step> steps,
                  std::vector<std::pair<std::uint32_t, std::uint32_t>>& waits);

/// Fills in the schedule's waits and successors; a pair counts once.
void link_waits(std::vector<std::pair<std::uint32_t, std::uint32_t>>& waits, Schedule& schedule);

}  // namespace mccl::schedule
