// Shared by all fuzz targets: reading the input, and reporting a violation.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string_view>

namespace mccl::fuzz {

/// Throws std::logic_error if the condition does not hold. This ends the run under libFuzzer and in
/// mccl_fuzz_corpus_test alike.
inline void require(bool holds, const char* what) {
  if (!holds) throw std::logic_error(what);
}

/// Reads every byte, so that a sanitizer detects invalid memory.
inline volatile std::byte touched;
inline void touch(std::span<const std::byte> bytes) {
  for (const std::byte each : bytes) touched = each;
}

/// Takes the bytes of an input from the front. Past the end, it supplies zeros.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : rest_(std::as_bytes(std::span(data, size))) {}

  bool empty() const { return rest_.empty(); }
  std::span<const std::byte> rest() const { return rest_; }
  std::string_view text() const {
    return {reinterpret_cast<const char*>(rest_.data()), rest_.size()};
  }

  /// Takes up to n bytes.
  std::span<const std::byte> take(std::size_t n) {
    const auto taken = rest_.first(std::min(n, rest_.size()));
    rest_ = rest_.subspan(taken.size());
    return taken;
  }
  /// Fills the whole destination.
  void fill(std::span<std::byte> destination) {
    const auto taken = take(destination.size());
    std::fill(std::copy(taken.begin(), taken.end(), destination.begin()), destination.end(),
              std::byte{0});
  }
  template <typename T>
  T number() {
    T value{};
    fill(std::as_writable_bytes(std::span(&value, 1)));
    return value;
  }
  std::size_t byte() { return number<std::uint8_t>(); }

 private:
  std::span<const std::byte> rest_;
};

}  // namespace mccl::fuzz

/// Defined by each target; the fuzzer's main calls it with one input after another.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
