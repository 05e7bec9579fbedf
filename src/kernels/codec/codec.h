// Floats to blocks of fewer bytes and back. Pointers may have any alignment; `n` counts elements
// and may be 0; the last block may hold fewer than the others, and is encoded as if zeros followed.
// Thread-safe. The results are the same bits with every instruction set; reference.h defines them.
#pragma once

#include <cstddef>
#include <span>

#include "base/coding.h"
#include "mccl/types.h"

namespace mccl::kernels {

/// dst = the blocks of src, Coding::bytes(n, form) bytes. Requires is_floating(dtype). `left`,
/// where it is given, becomes what the blocks leave out of src, of the same type; zero where that
/// is not finite.
void encode(const Coding& coding, Coded form, DType dtype, const void* src, std::size_t n,
            std::byte* dst, void* left = nullptr);

/// dst = what the blocks hold. False where no encode can have made them; then dst holds anything.
bool decode(const Coding& coding, Coded form, DType dtype, const std::byte* src, std::size_t n,
            void* dst);

/// Sums of contributions: block by block, in f32 and in the order of the operands, divided by
/// `divisor` at the end. Either returns -1, or the index of an operand that no encode can have
/// made. Rounded to blocks that are encoded anew; to `left`, of the type `dtype`, is added what
/// they leave out, times the divisor: as an operand would have to give it.
int fold_to_sum(const Coding& coding, std::span<const std::byte* const> operands, std::size_t n,
                int divisor, std::byte* dst, DType dtype = DType::f32, void* left = nullptr);
/// Or to plain elements:
int fold_to_elements(const Coding& coding, std::span<const std::byte* const> operands,
                     std::size_t n, int divisor, DType dtype, void* dst);

}  // namespace mccl::kernels
