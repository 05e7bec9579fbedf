#include "kernels/copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace mccl::kernels {

#if defined(__SSE2__)

namespace {

constexpr std::size_t kVector = sizeof(__m128i);
constexpr std::size_t kLine = 4 * kVector;

/// Writes a whole cache line, because a partly written line would reach memory in pieces.
void stream_line(std::byte* dst, const std::byte* src) {
  __m128i parts[4];
  std::memcpy(parts, src, kLine);
  for (std::size_t i = 0; i < 4; ++i) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(dst + i * kVector), parts[i]);
  }
}

}  // namespace

void copy_past_cache(void* dst, const void* src, std::size_t n) {
  auto* to = static_cast<std::byte*>(dst);
  const auto* from = static_cast<const std::byte*>(src);
  const std::size_t misfit = reinterpret_cast<std::uintptr_t>(to) % kLine;
  const std::size_t head = std::min(n, (kLine - misfit) % kLine);
  std::memcpy(to, from, head);
  std::size_t at = head;
  for (; at + kLine <= n; at += kLine) stream_line(to + at, from + at);
  std::memcpy(to + at, from + at, n - at);
  _mm_sfence();
}

#else

void copy_past_cache(void* dst, const void* src, std::size_t n) { std::memcpy(dst, src, n); }

#endif

}  // namespace mccl::kernels
