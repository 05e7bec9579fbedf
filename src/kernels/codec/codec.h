// Converts floats to smaller blocks and back. Pointers may have any alignment; `n` counts elements
// and may be 0. The last block may hold fewer elements than the others, and is encoded as if zeros
// followed. Thread-safe. Every instruction set gives the same bits, which
// tests/kernels/codec/reference.h defines.
#pragma once

#include <cstddef>
#include <span>

#include "base/coding.h"
#include "mccl/types.h"

namespace mccl::kernels {

/// Encodes src into blocks of Coding::bytes(n, form) bytes in total. Requires is_floating(dtype).
/// If `left` is not null, it receives the difference between src and the decoded blocks, as `n`
/// elements of `dtype`. A difference that is not finite is replaced by zero.
void encode(const Coding& coding, Coded form, DType dtype, const void* src, std::size_t n,
            std::byte* dst, void* left = nullptr);

/// Decodes blocks into dst. Returns false if encode() cannot have produced them; dst is then
/// undefined.
bool decode(const Coding& coding, Coded form, DType dtype, const std::byte* src, std::size_t n,
            void* dst);

/// fold_to_sum and fold_to_elements sum contributions block by block, in f32 and in the order of
/// the operands, and divide by `divisor` at the end. They return -1 on success, or the index of an
/// operand that encode() cannot have produced.
///
/// fold_to_sum encodes the sum into blocks again. It adds the rounding error of these blocks, times
/// the divisor, to `left`, which has elements of `dtype`. The caller can add `left` to an operand
/// of the next sum.
int fold_to_sum(const Coding& coding, std::span<const std::byte* const> operands, std::size_t n,
                int divisor, std::byte* dst, DType dtype = DType::f32, void* left = nullptr);
/// fold_to_elements writes the sum as plain elements.
int fold_to_elements(const Coding& coding, std::span<const std::byte* const> operands,
                     std::size_t n, int divisor, DType dtype, void* dst);

}  // namespace mccl::kernels
