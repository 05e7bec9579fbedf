// The memory of arrays that a call works on.
//
// MLX hands an array's memory on to what follows when nobody else has a share in it, and keeps it
// until the stream is past all that uses it. So a call takes no share: whatever it held would never
// be handed on.
#pragma once

#include <mlx/array.h>

#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

#include "mccl/work.h"

namespace mccl_mlx {

namespace mx = mlx::core;

/// Of a call that begins later and ends before its stream goes on.
class Borrowed {
 public:
  Borrowed(std::initializer_list<const mx::array*> arrays) {
    for (const mx::array* array : arrays)
      if (const auto& data = array->data_shared_ptr()) data_.emplace_back(data);
  }

  /// MLX has let go of some of it, which it does when an evaluation fails half-way.
  bool gone() const {
    for (const auto& data : data_)
      if (data.expired()) return true;
    return false;
  }

 private:
  std::vector<std::weak_ptr<mx::array::Data>> data_;
};

/// Of a message that the engine writes from now on, whatever MLX does meanwhile: the memory of
/// `output`, which nobody else has yet, is freed when both are through with it.
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
