// Checks that schedules use only cables.
#pragma once

#include <span>
#include <string>

#include "schedule/cable_map.h"
#include "schedule/schedule.h"

namespace mccl::schedule {

/// Returns "" if a cable joins the sender and receiver of every message of the schedules (one per
/// rank, in rank order). Otherwise describes the first message that needs a relay.
std::string beyond_cables(std::span<const Schedule> schedules, const CableMap& cables);

}  // namespace mccl::schedule
