// The compiled CUDA kernels that the library contains.
#pragma once

#include <cstddef>
#include <span>

namespace mccl::kernels::cuda {

/// Returns a fatbin, which CUDA's driver can load. Empty if the build has no such kernels.
std::span<const std::byte> image();

}  // namespace mccl::kernels::cuda
