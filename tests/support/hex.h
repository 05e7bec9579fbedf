// Bytes as people compare them.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <span>
#include <string>

namespace mccl::testing {

/// "4d43 00 ..." without the blanks.
inline std::string hex(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte each : bytes) text += fmt::format("{:02x}", static_cast<unsigned>(each));
  return text;
}

}  // namespace mccl::testing
