// Converts bytes to and from hexadecimal digits, for comparison in tests.
#pragma once

#include <fmt/format.h>

#include <charconv>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mccl::testing {

/// Returns the bytes in hexadecimal without blanks, such as "4d4300".
inline std::string hex(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte each : bytes) text += fmt::format("{:02x}", static_cast<unsigned>(each));
  return text;
}

/// Returns the bytes that hex() would write as `digits`.
inline std::vector<std::byte> bytes_of_hex(std::string_view digits) {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i + 1 < digits.size(); i += 2) {
    unsigned value = 0;
    std::from_chars(&digits[i], &digits[i] + 2, value, 16);
    bytes.push_back(static_cast<std::byte>(value));
  }
  return bytes;
}

}  // namespace mccl::testing
