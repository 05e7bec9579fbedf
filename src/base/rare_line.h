// Limits how often a line that another process can cause is logged.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/log.h"

namespace mccl {

/// Logs one line in a minute and counts the others. Not thread-safe.
class RareLine {
 public:
  /// Logs `text`, with the number of lines left out since the last one, unless a line was logged
  /// less than a minute before `now`.
  void write(const Log& log, LogLevel level, Clock::time_point now, std::string_view text) {
    if (!log.enabled(level)) return;
    if (last_ && now - *last_ < kSilence) {
      ++left_out_;
      return;
    }
    last_ = now;
    const std::uint64_t left_out = std::exchange(left_out_, 0);
    log.write(level, left_out == 0 ? std::string(text)
                                   : fmt::format("{} (and {} more since the last such message)",
                                                 text, left_out));
  }

 private:
  static constexpr Clock::duration kSilence = std::chrono::seconds(60);

  std::optional<Clock::time_point> last_;
  std::uint64_t left_out_ = 0;
};

}  // namespace mccl
