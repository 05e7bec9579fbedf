// Creates the units that compute reductions instead of the host's kernels (a GPU, Accelerate), if
// the settings ask for any.
#pragma once

#include <memory>

#include "kernels/unit.h"
#include "mccl/config.h"

namespace mccl::native {

/// Returns a unit that passes each reduction to the first requested unit that supports it. Returns
/// null if the settings request none. Throws InvalidArgument if they request a unit that this
/// machine lacks.
std::shared_ptr<kernels::Unit> units_of(const Config& config);

}  // namespace mccl::native
