// Files of the system that hold one value, such as those of /sys.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

namespace mccl {

/// The first line of a file. Empty where there is no such file, or the system refuses to tell.
inline std::string first_line(const std::filesystem::path& file) {
  std::ifstream stream(file);
  std::string line;
  std::getline(stream, line);
  return line;
}

}  // namespace mccl
