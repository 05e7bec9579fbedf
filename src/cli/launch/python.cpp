#include "cli/launch/python.h"

#include <array>
#include <climits>
#include <cstdint>
#include <filesystem>
#include <initializer_list>

#ifdef __APPLE__
#include <mach-o/dyld.h>
#endif

#include "cli/launch/process.h"

namespace mccl::cli::launch {
namespace {

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

}  // namespace

std::string find_python(const std::string& path) {
  const std::string beside = this_program().parent_path().string();
  for (const std::string& folders : {beside, path}) {
    for (const char* name : {"python3", "python"}) {
      std::string found = find_program(name, folders, "");
      if (!found.empty()) return found;
    }
  }
  return {};
}

}  // namespace mccl::cli::launch
