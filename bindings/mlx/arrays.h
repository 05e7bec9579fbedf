// MLX arrays in the form that the engine takes.
#pragma once

#include <mlx/array.h>
#include <mlx/dtype.h>

#include "mccl/buffer.h"

namespace mccl_mlx {

namespace mx = mlx::core;

inline mccl::DType dtype_of(mx::Dtype dtype) {
  using Val = mx::Dtype::Val;
  switch (dtype.val()) {
    case Val::bool_:
      return mccl::DType::boolean;
    case Val::uint8:
      return mccl::DType::u8;
    case Val::uint16:
      return mccl::DType::u16;
    case Val::uint32:
      return mccl::DType::u32;
    case Val::uint64:
      return mccl::DType::u64;
    case Val::int8:
      return mccl::DType::i8;
    case Val::int16:
      return mccl::DType::i16;
    case Val::int32:
      return mccl::DType::i32;
    case Val::int64:
      return mccl::DType::i64;
    case Val::float16:
      return mccl::DType::f16;
    case Val::float32:
      return mccl::DType::f32;
    case Val::float64:
      return mccl::DType::f64;
    case Val::bfloat16:
      return mccl::DType::bf16;
    case Val::complex64:
      return mccl::DType::c64;
  }
  return mccl::DType::u8;  // unreachable: MLX has no other type
}

/// Memory of an array, which must be row-contiguous and evaluated. Valid as long as the array's
/// data lives.
inline mccl::Buffer buffer_of(mx::array& array) {
  return {array.size() == 0 ? nullptr : array.data<char>(), array.size(), dtype_of(array.dtype())};
}

inline mccl::ConstBuffer buffer_of(const mx::array& array) {
  return {array.size() == 0 ? nullptr : array.data<char>(), array.size(), dtype_of(array.dtype())};
}

}  // namespace mccl_mlx
