// What a job's settings have do arithmetic in place of the host's kernels.
#pragma once

#include <memory>

#include "kernels/unit.h"
#include "mccl/config.h"

namespace mccl::native {

/// Null where that is nothing. Throws InvalidArgument where the settings ask for what this machine
/// has not.
std::shared_ptr<kernels::Unit> units_of(const Config& config);

}  // namespace mccl::native
