// Writes the log lines of one context to stderr, each with level, time and rank.
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

/// Throws InvalidArgument for an unknown name.
LogLevel log_level_of(std::string_view name);

/// Cheap to copy. Thread-safe. Two contexts of one process log independently. Never throws: a line
/// for which there is no memory is dropped. All lines are dropped if the log was made while
/// standard error was closed.
class Log {
 public:
  Log(int rank, LogLevel level);

  template <typename... Args>
  void debug(fmt::format_string<Args...> format, const Args&... args) const noexcept {
    if (enabled(LogLevel::debug))
      write_formatted(LogLevel::debug, format, fmt::make_format_args(args...));
  }
  template <typename... Args>
  void info(fmt::format_string<Args...> format, const Args&... args) const noexcept {
    if (enabled(LogLevel::info))
      write_formatted(LogLevel::info, format, fmt::make_format_args(args...));
  }
  template <typename... Args>
  void warn(fmt::format_string<Args...> format, const Args&... args) const noexcept {
    if (enabled(LogLevel::warn))
      write_formatted(LogLevel::warn, format, fmt::make_format_args(args...));
  }
  template <typename... Args>
  void error(fmt::format_string<Args...> format, const Args&... args) const noexcept {
    if (enabled(LogLevel::error))
      write_formatted(LogLevel::error, format, fmt::make_format_args(args...));
  }

  bool enabled(LogLevel level) const { return level >= level_; }
  /// Text of several lines is written line by line.
  void write(LogLevel level, std::string_view text) const noexcept;

 private:
  void write_formatted(LogLevel level, fmt::string_view format,
                       fmt::format_args args) const noexcept;

  LogLevel level_;
  std::shared_ptr<spdlog::logger> logger_;
};

}  // namespace mccl
