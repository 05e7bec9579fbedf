// A process's place in a job, as reported by the launcher that started it.
#pragma once

#include <string_view>

#include "mccl/meeting.h"

namespace mccl {

/// Returns a port that depends only on the seed, below the range of ports that systems assign.
/// Ranks that have only a name in common can connect through it.
int derived_port(std::string_view seed);

}  // namespace mccl
