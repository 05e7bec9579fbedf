// What adds up fastest on this machine: MCCL's own kernels, or what the system has.
#pragma once

#include <string>

#include "mccl/config.h"

namespace mccl::cli::bench {

/// A table for people, of sums of two arrays in place.
std::string kernels_text(const Config& config);

}  // namespace mccl::cli::bench
