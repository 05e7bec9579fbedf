// Formats steps as text.
#pragma once

#include <string>

#include "schedule/schedule.h"

namespace mccl::schedule {

/// Returns text such as "output[0..16)"; units are elements, and the end is exclusive.
std::string describe(const Region& region);
/// Returns one line, such as "send input[0..16) to rank 1".
std::string describe(const Step& step);

}  // namespace mccl::schedule
