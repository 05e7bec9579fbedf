// Limits how often a line that a peer can cause is logged.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "base/clock.h"

namespace mccl {

/// Lets one line pass in a minute and counts the others. Not thread-safe.
class RareLine {
 public:
  /// Returns the end of the line, which states the number of lines left out since the last one;
  /// nothing if this line must be left out.
  std::optional<std::string> pass(Clock::time_point now) {
    if (last_ && now - *last_ < kSilence) {
      ++left_out_;
      return std::nullopt;
    }
    last_ = now;
    const std::uint64_t left_out = std::exchange(left_out_, 0);
    if (left_out == 0) return "";
    return fmt::format(" (and {} more since the last such message)", left_out);
  }

 private:
  static constexpr Clock::duration kSilence = std::chrono::seconds(60);

  std::optional<Clock::time_point> last_;
  std::uint64_t left_out_ = 0;
};

}  // namespace mccl
