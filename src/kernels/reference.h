// Defines the kernels' results by loops over single elements. Tests compare the vector code with
// these functions bit for bit.
//
// 16-bit floats are computed in f32 and rounded to nearest even, once. Every NaN result is the
// positive quiet NaN with no payload. min(-0, +0) is -0 and max(-0, +0) is +0, in either order. A
// complex product is the plain formula; it does not recover infinities as C's operator does.
// Integers wrap. bool treats every byte except 0 as true, and results are 0 or 1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "mccl/types.h"

namespace mccl::kernels::reference {

/// Same as the functions in reduce.h.
void reduce(DType dtype, ReduceKind kind, const void* a, const void* b, void* dst, std::size_t n);
void fold(DType dtype, ReduceKind kind, std::span<const void* const> operands, void* dst,
          std::size_t n);
void divide(DType dtype, void* data, std::size_t n, int divisor);
void scale(DType dtype, const void* src, void* dst, std::size_t n, double factor);

float widen_f16(std::uint16_t bits);
float widen_bf16(std::uint16_t bits);
std::uint16_t narrow_f16(float value);
std::uint16_t narrow_bf16(float value);

}  // namespace mccl::kernels::reference
