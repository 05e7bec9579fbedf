// The vector code of codecs, between whole blocks and f32.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/coding.h"
#include "mccl/types.h"

namespace mccl::kernels {

/// What encode_topk leaves of places that no element has.
inline constexpr std::uint16_t kNoPlace = 0xFFFF;

/// Of any codec but none and topk: `blocks` whole ones.
void encode_blocks(Codec codec, const float* src, std::size_t blocks, std::byte* dst);
/// values += what the blocks hold, or = where it is the `first`. False as in codec.h.
bool add_blocks(Codec codec, const std::byte* src, std::size_t blocks, float* values, bool first);

/// One block of topk, of which `kept` elements are kept.
void encode_topk(const float* src, std::size_t kept, std::byte* dst);
bool add_topk(const std::byte* src, std::size_t kept, float* values, bool first);

/// Elements of any float type as f32 and back, rounded to nearest even.
void widen(DType dtype, const void* src, std::size_t n, float* dst);
void narrow(DType dtype, const float* src, std::size_t n, void* dst);
/// The end of a sum: values[i] /= divisor, and every NaN becomes the one that results have.
void finish_values(float* values, std::size_t n, float divisor);

}  // namespace mccl::kernels
