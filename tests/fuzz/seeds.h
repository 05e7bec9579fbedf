// Shared by the sources of mccl_fuzz_seeds.
#pragma once

#include <filesystem>
#include <fstream>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace mccl::fuzz {

using Bytes = std::vector<std::byte>;

template <typename T>
requires(std::is_trivially_copyable_v<T> && !std::is_array_v<T>)  // text uses the overload below
    Bytes raw(const T& value) {
  const auto bytes = std::as_bytes(std::span(&value, 1));
  return {bytes.begin(), bytes.end()};
}

inline Bytes raw(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

inline Bytes operator+(Bytes first, const Bytes& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

inline Bytes one(int value) { return {static_cast<std::byte>(value)}; }

/// The seeds of one target, named after their content.
class Corpus {
 public:
  Corpus(const std::filesystem::path& root, std::string_view target) : folder_(root / target) {
    std::filesystem::create_directories(folder_);
  }
  void add(std::string_view name, const Bytes& bytes) const {
    std::ofstream file(folder_ / name, std::ios::binary);
    file.write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
    if (!file.flush()) throw std::runtime_error("cannot write " + (folder_ / name).string());
  }
  void add(std::string_view name, std::string_view text) const { add(name, raw(text)); }

 private:
  const std::filesystem::path folder_;
};

/// Write the seeds of some targets.
void write_seeds_of_ranks(const std::filesystem::path& root);
void write_seeds_of_programs(const std::filesystem::path& root);

}  // namespace mccl::fuzz
