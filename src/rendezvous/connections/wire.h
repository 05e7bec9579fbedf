// Encoding of texts and of little-endian numbers on the wire.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

namespace mccl::rendezvous {

using Bytes = std::vector<std::byte>;

template <std::unsigned_integral T>
void append(Bytes& to, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i)
    to.push_back(
        static_cast<std::byte>((static_cast<unsigned long long>(value) >> (8 * i)) & 0xff));
}

inline void append(Bytes& to, std::span<const std::byte> bytes) {
  to.insert(to.end(), bytes.begin(), bytes.end());
}

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

inline std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Removes from `text` the part before the first separator, and the separator. Returns that part.
inline std::string_view next_part(std::string_view& text, char separator) {
  const std::string_view part = text.substr(0, text.find(separator));
  text.remove_prefix(std::min(text.size(), part.size() + 1));
  return part;
}

/// Reads consecutive numbers from bytes. The caller must ensure that enough bytes are left.
class WireReader {
 public:
  explicit WireReader(std::span<const std::byte> bytes) : rest_(bytes) {}

  template <std::unsigned_integral T>
  T number() {
    unsigned long long value = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i)
      value |= static_cast<unsigned long long>(rest_[i]) << (8 * i);
    rest_ = rest_.subspan(sizeof(T));
    return static_cast<T>(value);
  }

 private:
  std::span<const std::byte> rest_;
};

}  // namespace mccl::rendezvous
