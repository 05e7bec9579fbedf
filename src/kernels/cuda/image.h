// The compiled kernels that the library contains.
#pragma once

#include <cstddef>
#include <span>

namespace mccl::kernels::cuda {

/// A fatbin, which CUDA's driver loads. Empty if the build had no nvcc.
std::span<const std::byte> image();

}  // namespace mccl::kernels::cuda
