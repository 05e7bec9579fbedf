// Copies for large results.
#pragma once

#include <cstddef>

namespace mccl::kernels {

/// dst = src, n bytes that do not overlap. For a destination that is not in the cache and that
/// nobody reads soon: it is written without being read first, which plain stores do line by line,
/// where the processor can. What is written is in order with later stores of this thread.
void copy_past_cache(void* dst, const void* src, std::size_t n);

}  // namespace mccl::kernels
