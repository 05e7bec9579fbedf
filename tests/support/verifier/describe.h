// Steps in words.
#pragma once

#include <string>

#include "schedule/schedule.h"

namespace mccl::schedule {

/// "output[0..16)": elements, the end not among them.
std::string describe(const Region& region);
/// On one line, such as "send input[0..16) to rank 1".
std::string describe(const Step& step);

}  // namespace mccl::schedule
