// Log lines of one context: to stderr, each with level, time and rank.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <string>
#include <string_view>

namespace spdlog {
class logger;
}

namespace mccl {

enum class LogLevel { trace, debug, info, warn, error, fatal, off };

/// Throws InvalidArgument for a name that is none.
LogLevel log_level_of(std::string_view name);

/// Cheap to copy, thread-safe. Two contexts of one process log independently.
class Log {
 public:
  Log(int rank, LogLevel level);

  template <typename... Args>
  void debug(fmt::format_string<Args...> format, Args&&... args) const {
    if (enabled(LogLevel::debug))
      write(LogLevel::debug, fmt::format(format, std::forward<Args>(args)...));
  }
  template <typename... Args>
  void info(fmt::format_string<Args...> format, Args&&... args) const {
    if (enabled(LogLevel::info))
      write(LogLevel::info, fmt::format(format, std::forward<Args>(args)...));
  }
  template <typename... Args>
  void warn(fmt::format_string<Args...> format, Args&&... args) const {
    if (enabled(LogLevel::warn))
      write(LogLevel::warn, fmt::format(format, std::forward<Args>(args)...));
  }
  template <typename... Args>
  void error(fmt::format_string<Args...> format, Args&&... args) const {
    if (enabled(LogLevel::error))
      write(LogLevel::error, fmt::format(format, std::forward<Args>(args)...));
  }

  bool enabled(LogLevel level) const { return level >= level_; }
  /// Text of several lines is written line by line.
  void write(LogLevel level, std::string_view text) const;

 private:
  LogLevel level_;
  std::shared_ptr<spdlog::logger> logger_;
};

}  // namespace mccl
