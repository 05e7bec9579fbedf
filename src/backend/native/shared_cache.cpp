#include "backend/native/shared_cache.h"

#include <fmt/format.h>

#include <filesystem>
#include <set>
#include <string>
#include <system_error>

#include "base/first_line.h"
#include "base/value_text.h"

#ifdef __APPLE__
#include <sys/sysctl.h>
#endif

namespace mccl {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kGuess = std::size_t{16} << 20;
constexpr int kMostLevels = 4;

}  // namespace

std::size_t shared_cache_bytes_in(const std::string& cpus) {
  std::set<std::string> seen;  // the shared_cpu_list of each cache that has been counted
  std::size_t sum = 0;
  std::error_code error;
  for (fs::directory_iterator cpu(cpus, error), end; !error && cpu != end; cpu.increment(error)) {
    for (int depth = kMostLevels; depth > 0; --depth) {
      const fs::path cache = cpu->path() / "cache" / fmt::format("index{}", depth);
      const std::size_t bytes = parse_bytes(first_line(cache / "size")).value_or(0);
      if (bytes == 0) continue;
      if (seen.insert(first_line(cache / "shared_cpu_list")).second) sum += bytes;
      break;
    }
  }
  return sum;
}

std::size_t shared_cache_bytes() {
#ifdef __APPLE__
  for (const char* name : {"hw.l3cachesize", "hw.perflevel0.l2cachesize", "hw.l2cachesize"}) {
    std::size_t bytes = 0;
    std::size_t size = sizeof bytes;
    if (::sysctlbyname(name, &bytes, &size, nullptr, 0) == 0 && bytes > 0) return bytes;
  }
  return kGuess;
#else
  const std::size_t bytes = shared_cache_bytes_in("/sys/devices/system/cpu");
  return bytes > 0 ? bytes : kGuess;
#endif
}

}  // namespace mccl
