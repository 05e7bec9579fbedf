// Reads system files that hold one value, such as those in /sys.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

namespace mccl {

/// The first line of a file; empty if the file does not exist or cannot be read.
inline std::string first_line(const std::filesystem::path& file) {
  std::ifstream stream(file);
  std::string line;
  std::getline(stream, line);
  return line;
}

}  // namespace mccl
