// Support of GPU arrays, for an MLX that is built for CUDA.
#pragma once

#include <mlx/array.h>
#include <mlx/stream.h>

#include <functional>

#include "mccl/buffer.h"
#include "mccl/work.h"

namespace mccl_mlx::gpu {

namespace mx = mlx::core;

/// True if there is a GPU and this build supports collectives on its arrays.
bool is_available();

/// Returns the memory of an array on the GPU of `stream`. The array must be row-contiguous and
/// evaluated. The memory is valid as long as the array's data lives.
mccl::Buffer buffer_of(const mx::array& array, mx::Stream stream);

/// Calls `start` with the CUDA stream of `stream`, so that the call follows all work that MLX has
/// enqueued there. MLX records operations in CUDA graphs, which cannot contain a call through the
/// host. This function therefore first launches the operations recorded so far. Must be called
/// while MLX evaluates an operation of that stream.
mccl::Work run(mx::Stream stream, const std::function<mccl::Work(void* cuda_stream)>& start);

}  // namespace mccl_mlx::gpu
