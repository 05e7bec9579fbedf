#include "cli/launch/this_program.h"

#include <array>
#include <climits>
#include <cstdint>
#include <system_error>

#ifdef __APPLE__
#include <mach-o/dyld.h>
#endif

namespace mccl::cli::launch {

std::filesystem::path this_program() {
  std::error_code unknown;
#ifdef __APPLE__
  std::array<char, PATH_MAX> path = {};
  auto length = static_cast<std::uint32_t>(path.size());
  if (::_NSGetExecutablePath(path.data(), &length) != 0) return {};
  return std::filesystem::canonical(path.data(), unknown);
#else
  return std::filesystem::read_symlink("/proc/self/exe", unknown);
#endif
}

}  // namespace mccl::cli::launch
