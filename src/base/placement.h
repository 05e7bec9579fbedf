// A process's place in a job, as whatever started the job tells it.
#pragma once

#include <string_view>

#include "mccl/meeting.h"

namespace mccl {

/// A port below those that systems hand out, the same for the same seed: where the ranks of a job
/// can meet that share nothing but a name.
int derived_port(std::string_view seed);

}  // namespace mccl
