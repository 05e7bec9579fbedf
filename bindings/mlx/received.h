// The memory of received messages.
//
// MLX reuses an array's memory for the next operation if nothing else shares it, and keeps it until
// the stream has finished all its uses, also when an evaluation fails half-way. Calls therefore do
// not share ownership of their arrays, because that would prevent the reuse. Only a receive does:
// the engine writes from the moment it is evaluated, even if the stream fails.
#pragma once

#include <mlx/array.h>

#include <memory>
#include <utility>

#include "mccl/work.h"

namespace mccl_mlx {

namespace mx = mlx::core;

/// Frees the memory of `output`, which must have no other owner yet, only after both MLX and the
/// engine have finished with it.
inline void free_when_received(mx::array& output, const mccl::Work& work) {
  using Data = mx::array::Data;
  const auto release = [work](Data* data) {
    work.on_done([data](const std::exception_ptr&) { delete data; });
  };
  // MLX would create the pointer with a deleter of its own.
  auto& pointer = const_cast<std::shared_ptr<Data>&>(output.data_shared_ptr());
  pointer = std::shared_ptr<Data>(new Data(std::move(*pointer)), release);
}

}  // namespace mccl_mlx
