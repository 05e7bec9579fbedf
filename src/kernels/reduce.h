// Arithmetic on host memory. Pointers may have any alignment; `n` counts elements and may be 0.
// Thread-safe. Each function uses the best instruction set of the machine, selected at run time.
// All instruction sets, and both orders of two operands, give the same bits.
// tests/kernels/reference.h defines the results.
#pragma once

#include <cstddef>
#include <span>

#include "mccl/types.h"

namespace mccl::kernels {

/// dst[i] = a[i] op b[i]. dst may be a or b, but must not overlap them otherwise. Kinds avg and
/// premul_sum compute plain sums. Integer sums and products wrap. NaN propagates in min and max.
/// 16-bit floats are computed in f32 and rounded once, to nearest even. Requires
/// supports(dtype, kind).
void reduce(DType dtype, ReduceKind kind, const void* a, const void* b, void* dst, std::size_t n);

/// dst = operands[0] op operands[1] op …, in that order. 16-bit floats accumulate in f32 and are
/// rounded once at the end. With kind avg, the result is divided by the number of operands before
/// it is rounded. dst may be one of the operands.
void fold(DType dtype, ReduceKind kind, std::span<const void* const> operands, void* dst,
          std::size_t n);

/// data[i] /= divisor, the last step of an average. Integer results are truncated toward zero.
void divide(DType dtype, void* data, std::size_t n, int divisor);

/// dst[i] = src[i] * factor, for floats and complex numbers; dst may be src.
void scale(DType dtype, const void* src, void* dst, std::size_t n, double factor);

}  // namespace mccl::kernels
