// Formats bytes for comparison in tests.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <span>
#include <string>

namespace mccl::testing {

/// Returns the bytes in hexadecimal without blanks, such as "4d4300".
inline std::string hex(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte each : bytes) text += fmt::format("{:02x}", static_cast<unsigned>(each));
  return text;
}

}  // namespace mccl::testing
