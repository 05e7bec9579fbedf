// Conversions of MLX arrays to the buffers and types of the engine.
#pragma once

#include <mlx/array.h>
#include <mlx/dtype.h>
#ifdef __linux__
#include <sys/mman.h>
#endif

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "mccl/buffer.h"
#include "mccl/work.h"

namespace mccl_mlx {

namespace mx = mlx::core;

inline mccl::DType dtype_of(mx::Dtype dtype) {
  using mccl::DType;
  using enum mx::Dtype::Val;
  constexpr std::pair<mx::Dtype::Val, DType> kTypes[] = {
      {bool_, DType::boolean}, {uint8, DType::u8},     {uint16, DType::u16},  {uint32, DType::u32},
      {uint64, DType::u64},    {int8, DType::i8},      {int16, DType::i16},   {int32, DType::i32},
      {int64, DType::i64},     {float16, DType::f16},  {float32, DType::f32}, {float64, DType::f64},
      {bfloat16, DType::bf16}, {complex64, DType::c64}};
  for (const auto& [val, found] : kTypes)
    if (dtype.val() == val) return found;
  return DType::u8;  // unreachable: MLX has no other type
}

/// Returns the memory of an array, which must be row-contiguous and evaluated. The memory is valid
/// as long as the array's data lives.
inline mccl::Buffer buffer_of(mx::array& array) {
  return {array.size() == 0 ? nullptr : array.data<char>(), array.size(), dtype_of(array.dtype())};
}

inline mccl::ConstBuffer buffer_of(const mx::array& array) {
  return {array.size() == 0 ? nullptr : array.data<char>(), array.size(), dtype_of(array.dtype())};
}

/// Ensures that the memory of `output` is freed only after both MLX and the engine have finished
/// with it. `output` must have no other owner yet.
///
/// MLX keeps an array's memory until the stream has finished all operations that use it, even if an
/// evaluation fails half-way. MLX then reuses the memory for the next operation unless the memory
/// has another owner. Most calls therefore do not share ownership of their arrays, because that
/// would prevent the reuse. Only a receive shares ownership: the engine writes to its array from
/// the moment the receive is evaluated, even if the stream fails.
inline void free_when_received(mx::array& output, const mccl::Work& work) {
  using Data = mx::array::Data;
  const auto release = [work](Data* data) {
    work.on_done([data](const std::exception_ptr&) { delete data; });
  };
  // Replaces the pointer that MLX created, because its deleter cannot be changed.
  auto& pointer = const_cast<std::shared_ptr<Data>&>(output.data_shared_ptr());
  pointer = std::shared_ptr<Data>(new Data(std::move(*pointer)), release);
}

/// Requests large pages for the memory of a result. The first access to memory that MLX has just
/// allocated causes one page fault per page, which takes longer than the call if the result is
/// large. No-op for less than 4 MiB, or if the system does not support large pages.
inline void ask_for_large_pages([[maybe_unused]] const mccl::Buffer& memory) {
#ifdef MADV_HUGEPAGE
  constexpr std::size_t kWorthwhile = std::size_t{4} << 20;
  constexpr std::uintptr_t kPage = std::uintptr_t{2} << 20;
  if (memory.bytes() < kWorthwhile) return;
  const auto begin = reinterpret_cast<std::uintptr_t>(memory.data);
  const std::uintptr_t first = (begin + kPage - 1) / kPage * kPage;
  const std::uintptr_t last = (begin + memory.bytes()) / kPage * kPage;
  if (first < last) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
#endif
}

}  // namespace mccl_mlx
