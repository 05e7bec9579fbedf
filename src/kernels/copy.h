// Copies memory without fetching the destination into this core's cache.
#pragma once

#include <cstddef>

namespace mccl::kernels {

/// Copies n bytes; src and dst must not overlap. Meant for a destination that is not in the cache
/// and that this core will not read soon. On processors that support it, the stores bypass the
/// cache. Plain stores would first fetch each line of dst from memory or from another core's cache.
/// On other processors this is memcpy. The writes are ordered before later stores of this thread.
void copy_past_cache(void* dst, const void* src, std::size_t n);

/// Smallest result, in bytes, for which copy_past_cache() is worthwhile, because no cache can hold
/// the whole result. Results computed in place are an exception: their memory has just been read.
inline constexpr std::size_t kLargeResultBytes = std::size_t{8} << 20;

}  // namespace mccl::kernels
