// Replaces gpu_cuda.cpp if MLX is not built for CUDA, or if CUDA's headers are missing.
#include "gpu.h"
#include "mccl/error.h"

namespace mccl_mlx::gpu {

bool is_available() { return false; }

mccl::Buffer buffer_of(const mx::array&, mx::Stream) {
  throw mccl::Error("this build of MCCL supports CPU streams only");
}

mccl::Work run(mx::Stream, const std::function<mccl::Work(void*)>&) {
  throw mccl::Error("this build of MCCL supports CPU streams only");
}

}  // namespace mccl_mlx::gpu
