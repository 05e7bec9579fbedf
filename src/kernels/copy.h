// Copies whose destination is not wanted in this core's cache.
#pragma once

#include <cstddef>

namespace mccl::kernels {

/// dst = src, n bytes that do not overlap. For a destination that is not in the cache and that this
/// core does not read soon: where the processor can, it is written without being read first or
/// taken from another core's cache, which plain stores do line by line; elsewhere this is memcpy.
/// What is written is in order with later stores of this thread.
void copy_past_cache(void* dst, const void* src, std::size_t n);

/// A result of at least so many bytes is in nobody's cache by the time it is whole, so that it is
/// worth while for it, unless it is in place: what is written then has just been read.
inline constexpr std::size_t kLargeResultBytes = std::size_t{8} << 20;

}  // namespace mccl::kernels
