// The memory of received messages.
//
// MLX reuses an array's memory for the next operation if nothing else shares it, and keeps it until
// the stream has finished all its uses, also when an evaluation fails half-way. Calls therefore do
// not share ownership of their arrays, because that would prevent the reuse. Only a receive does:
// the engine writes to its array from the moment the receive is evaluated, even if the stream
// fails.
#pragma once

#include <mlx/array.h>

#include <memory>
#include <utility>

#include "mccl/work.h"

namespace mccl_mlx {

namespace mx = mlx::core;

/// Ensures that the memory of `output` is freed only after both MLX and the engine have finished
/// with it. `output` must have no other owner yet.
inline void free_when_received(mx::array& output, const mccl::Work& work) {
  using Data = mx::array::Data;
  const auto release = [work](Data* data) {
    work.on_done([data](const std::exception_ptr&) { delete data; });
  };
  // Replaces the pointer that MLX created, because its deleter cannot be changed.
  auto& pointer = const_cast<std::shared_ptr<Data>&>(output.data_shared_ptr());
  pointer = std::shared_ptr<Data>(new Data(std::move(*pointer)), release);
}

}  // namespace mccl_mlx
