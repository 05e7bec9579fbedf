// The kernels as the library carries them.
#pragma once

#include <cstddef>
#include <span>

namespace mccl::kernels::cuda {

/// A fatbin, which CUDA's driver loads; empty where the build had no nvcc.
std::span<const std::byte> image();

}  // namespace mccl::kernels::cuda
