// Sums f32 with Accelerate, the arithmetic library of macOS.
#pragma once

#include <memory>

#include "kernels/unit.h"

namespace mccl::kernels {

/// Throws InvalidArgument if this system has no Accelerate.
std::shared_ptr<Unit> make_accelerate();

}  // namespace mccl::kernels
