// Compares the speed of sums on this machine: MCCL's own kernels, Accelerate and the GPU.
#pragma once

#include <string>

#include "mccl/config.h"

namespace mccl::cli::bench {

/// Returns a readable table of rates, for sums of two arrays in place.
std::string kernels_text(const Config& config);

}  // namespace mccl::cli::bench
