// Sums of f32 by Accelerate, the library of macOS for arithmetic.
#pragma once

#include <memory>

#include "kernels/unit.h"

namespace mccl::kernels {

/// Throws InvalidArgument where this system has none.
std::shared_ptr<Unit> make_accelerate();

}  // namespace mccl::kernels
