// The memory of messages that are received.
//
// MLX hands an array's memory on to what follows when nobody else has a share in it, and keeps it
// until the stream is past all that uses it, also when an evaluation fails half-way. So no call
// takes a share in its arrays: whatever it held would never be handed on. A receive is the one that
// needs more, as the engine writes from the moment it is evaluated, whatever becomes of its stream.
#pragma once

#include <mlx/array.h>

#include <memory>
#include <utility>

#include "mccl/work.h"

namespace mccl_mlx {

namespace mx = mlx::core;

/// Has the memory of `output`, which nobody else has yet, freed when both MLX and the engine are
/// through with it.
inline void free_when_received(mx::array& output, const mccl::Work& work) {
  using Data = mx::array::Data;
  const auto release = [work](Data* data) {
    work.on_done([data](const std::exception_ptr&) { delete data; });
  };
  // MLX would make the pointer itself, with a deleter of its own.
  auto& pointer = const_cast<std::shared_ptr<Data>&>(output.data_shared_ptr());
  pointer = std::shared_ptr<Data>(new Data(std::move(*pointer)), release);
}

}  // namespace mccl_mlx
