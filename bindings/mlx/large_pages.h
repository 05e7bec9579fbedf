// Large pages for results. The first access to memory that MLX has just allocated costs one page
// fault per page. For large results that takes longer than the call.
#pragma once

#ifdef __linux__
#include <sys/mman.h>
#endif

#include <cstddef>
#include <cstdint>

#include "mccl/buffer.h"

namespace mccl_mlx {

/// Requests large pages. A hint: no-op for less than 4 MiB, or if the system does not support it.
inline void ask_for_large_pages([[maybe_unused]] const mccl::Buffer& memory) {
#ifdef MADV_HUGEPAGE
  constexpr std::size_t kWorthwhile = std::size_t{4} << 20;
  constexpr std::uintptr_t kPage = std::uintptr_t{2} << 20;
  if (memory.bytes() < kWorthwhile) return;
  const auto begin = reinterpret_cast<std::uintptr_t>(memory.data);
  const std::uintptr_t first = (begin + kPage - 1) / kPage * kPage;
  const std::uintptr_t last = (begin + memory.bytes()) / kPage * kPage;
  if (first < last) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
#endif
}

}  // namespace mccl_mlx
