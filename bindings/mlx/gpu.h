// Arrays on the GPU, of an MLX that is built for CUDA.
#pragma once

#include <mlx/array.h>
#include <mlx/stream.h>

#include <functional>

#include "mccl/buffer.h"
#include "mccl/work.h"

namespace mccl_mlx::gpu {

namespace mx = mlx::core;

/// True when this build can communicate arrays of MLX's GPU, and there is one.
bool is_available();

/// The memory of an array that is row-contiguous and has been given some, on the GPU of `stream`.
/// Valid as long as the array's data lives.
mccl::Buffer buffer_of(const mx::array& array, mx::Stream stream);

/// Calls `start` with the CUDA stream of `stream`, behind all that MLX has given it so far. MLX
/// records operations in graphs, which can hold no call that goes through the host: what is
/// recorded is launched before. Called where MLX evaluates an operation of that stream.
mccl::Work run(mx::Stream stream, const std::function<mccl::Work(void* cuda_stream)>& start);

}  // namespace mccl_mlx::gpu
