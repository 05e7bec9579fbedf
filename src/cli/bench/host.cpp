#include "cli/bench/host.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <thread>

#ifdef __APPLE__
#include <sys/sysctl.h>
#endif

namespace mccl::cli::bench {

std::string cpu_name() {
#ifdef __APPLE__
  std::array<char, 256> name = {};
  std::size_t size = name.size() - 1;
  if (::sysctlbyname("machdep.cpu.brand_string", name.data(), &size, nullptr, 0) == 0)
    return name.data();
#else
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
#endif
  utsname names = {};
  return ::uname(&names) == 0 ? names.machine : "unknown";
}

unsigned core_count() { return std::max(1U, std::thread::hardware_concurrency()); }

std::uint64_t memory_bytes() {
  const long pages = ::sysconf(_SC_PHYS_PAGES);
  const long page = ::sysconf(_SC_PAGESIZE);
  return pages > 0 && page > 0
             ? static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(page)
             : 0;
}

}  // namespace mccl::cli::bench
