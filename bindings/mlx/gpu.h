// GPU arrays of an MLX that is built for CUDA.
#pragma once

#include <mlx/array.h>
#include <mlx/stream.h>

#include <functional>

#include "mccl/buffer.h"
#include "mccl/work.h"

namespace mccl_mlx::gpu {

namespace mx = mlx::core;

/// True if this build can communicate arrays of MLX's GPU, and there is a GPU.
bool is_available();

/// The memory, on the GPU of `stream`, of an array that must be row-contiguous and have data. Valid
/// as long as the array's data lives.
mccl::Buffer buffer_of(const mx::array& array, mx::Stream stream);

/// Calls `start` with the CUDA stream of `stream`, after all work that MLX has given it so far. MLX
/// records operations in CUDA graphs, which cannot contain a call through the host. Therefore this
/// first launches the recorded operations. Called where MLX evaluates an operation of that stream.
mccl::Work run(mx::Stream stream, const std::function<mccl::Work(void* cuda_stream)>& start);

}  // namespace mccl_mlx::gpu
