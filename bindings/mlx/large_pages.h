// Memory that MLX has just allocated costs a page fault per page at its first touch, which for
// large results takes longer than the call. Systems that give large pages to whoever asks are
// asked.
#pragma once

#ifdef __linux__
#include <sys/mman.h>
#endif

#include <cstddef>
#include <cstdint>

#include "mccl/buffer.h"

namespace mccl_mlx {

/// A hint: where the system does not take it, nothing changes.
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
