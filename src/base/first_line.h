// Reads small files, such as those in /proc and /sys.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace mccl {

/// The first line of a file; empty if the file does not exist or cannot be read.
inline std::string first_line(const std::filesystem::path& file) {
  std::ifstream stream(file);
  std::string line;
  std::getline(stream, line);
  return line;
}

/// The contents of a file; empty if it cannot be read.
inline std::string contents_of(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

}  // namespace mccl
