// A process's place in a job, as reported by the launcher that started it.
#pragma once

#include <string_view>

#include "mccl/meeting.h"

namespace mccl {

/// A port below the range that systems assign, equal for equal seeds. Ranks that share nothing but
/// a name can meet there.
int derived_port(std::string_view seed);

}  // namespace mccl
