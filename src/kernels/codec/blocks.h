// The vector code of the codecs, which converts between whole blocks and f32.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/coding.h"
#include "mccl/types.h"

namespace mccl::kernels {

/// Index that encode_topk writes for each unused entry of a block.
inline constexpr std::uint16_t kNoPlace = 0xFFFF;

/// Encodes `blocks` whole blocks. Supports every codec except none and topk.
void encode_blocks(Codec codec, const float* src, std::size_t blocks, std::byte* dst);
/// Adds the decoded blocks to `values`, or assigns them if `first` is set. Returns false if
/// encode_blocks() cannot have produced the blocks.
bool add_blocks(Codec codec, const std::byte* src, std::size_t blocks, float* values, bool first);

/// Do the same as encode_blocks and add_blocks, for one block of topk with `kept` elements.
void encode_topk(const float* src, std::size_t kept, std::byte* dst);
bool add_topk(const std::byte* src, std::size_t kept, float* values, bool first);

/// Convert f16 or bf16 to f32 and back, rounding to nearest even.
void widen_halves(DType dtype, const void* src, std::size_t n, float* dst);
void narrow_halves(DType dtype, const float* src, std::size_t n, void* dst);
/// Last step of a sum: values[i] /= divisor, and every NaN becomes the same quiet NaN.
void finish_values(float* values, std::size_t n, float divisor);

}  // namespace mccl::kernels
