#include "base/machine.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#ifdef __APPLE__
#include <sys/sysctl.h>
#endif

namespace mccl {
namespace {

constexpr std::size_t kShortestLine = 64;

/// Returns the cache line size that the system reports; 0 if it reports none, as on some ARM
/// machines with Linux.
std::size_t line_said() {
#ifdef __APPLE__
  std::size_t bytes = 0;
  std::size_t length = sizeof(bytes);
  return ::sysctlbyname("hw.cachelinesize", &bytes, &length, nullptr, 0) == 0 ? bytes : 0;
#else
  const long bytes = ::sysconf(_SC_LEVEL1_DCACHE_LINESIZE);
  return bytes > 0 ? static_cast<std::size_t>(bytes) : 0;
#endif
}

}  // namespace

std::size_t page_bytes() {
  static const auto bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

std::size_t line_bytes() {
  static const std::size_t bytes =
      std::clamp(std::bit_ceil(std::max(line_said(), std::size_t{1})), kShortestLine, kLongestLine);
  return bytes;
}

std::uint64_t memory_bytes() {
  const long pages = ::sysconf(_SC_PHYS_PAGES);
  return pages > 0 ? static_cast<std::uint64_t>(pages) * page_bytes() : 0;
}

}  // namespace mccl
