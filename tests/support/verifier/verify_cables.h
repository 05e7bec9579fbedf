// Whether schedules keep to the cables.
#pragma once

#include <span>
#include <string>

#include "schedule/cable_map.h"
#include "schedule/schedule.h"

namespace mccl::schedule {

/// Empty when every message of the schedules (one per rank, in rank order) goes to a rank that a
/// cable joins to the sender; otherwise the first that another rank must pass on, in words.
std::string beyond_cables(std::span<const Schedule> schedules, const CableMap& cables);

}  // namespace mccl::schedule
