// The common form of every reduction: dst = finish(operands[0] op operands[1] op …), where finish()
// is the last step, such as the division of an average. The functions of reduce.h call the vector
// code through this interface.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "mccl/types.h"

namespace mccl::kernels {

struct FoldArguments {
  std::span<const void* const> operands;  ///< At least one operand.
  void* dst;
  std::size_t n;  ///< Number of elements of each operand.
  /// Number by which the sum is divided before it is rounded; only for kind avg of floats and
  /// complex numbers.
  int divisor = 1;
};

void fold_float(DType dtype, ReduceKind kind, const FoldArguments& arguments);    // f32, f64
void fold_complex(DType dtype, ReduceKind kind, const FoldArguments& arguments);  // c64, c128
void fold_half(DType dtype, ReduceKind kind, const FoldArguments& arguments);     // f16, bf16
void fold_integer(DType dtype, ReduceKind kind, const FoldArguments& arguments);  // all other types

void scale_float(DType dtype, const void* src, void* dst, std::size_t n, double factor);
void scale_half(DType dtype, const void* src, void* dst, std::size_t n, double factor);

/// Calls `visit` with a value of the integer type `dtype`. No-op for other types.
template <class Visit>
void visit_integer(DType dtype, const Visit& visit) {
  switch (dtype) {
    // The branches only look alike: each calls another instantiation.
    // NOLINTNEXTLINE(bugprone-branch-clone)
    case DType::u8:
      return visit(std::uint8_t());
    case DType::i8:
      return visit(std::int8_t());
    case DType::u16:
      return visit(std::uint16_t());
    case DType::i16:
      return visit(std::int16_t());
    case DType::u32:
      return visit(std::uint32_t());
    case DType::i32:
      return visit(std::int32_t());
    case DType::u64:
      return visit(std::uint64_t());
    case DType::i64:
      return visit(std::int64_t());
    default:
      return;
  }
}

}  // namespace mccl::kernels
