// Writes the log lines of one context to standard error or a file, each with level, time and rank.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <string>
#include <string_view>

#include "mccl/config.h"

namespace spdlog {
class logger;
}

namespace mccl {

class LogFile;

enum class LogLevel { trace, debug, info, warn, error, fatal, off };

/// Throws InvalidArgument for an unknown name.
LogLevel log_level_of(std::string_view name);

/// Cheap to copy. Thread-safe. Two contexts of one process log independently, but share a file of
/// the same name. In a child of a fork, a copy of a log with a file writes to a file of the child's
/// own. Writing never throws: a line for which there is no memory, or no space on the disk, is
/// dropped. All lines to standard error are dropped if the log was made while standard error was
/// closed.
class Log {
 public:
  /// Throws InvalidArgument for an unknown level. If the file cannot be opened, logs a warning and
  /// all later lines to standard error.
  Log(int rank, const LogOptions& options);
  /// Logs to standard error, in the format "text".
  Log(int rank, LogLevel level);

  /// Returns a log whose lines in JSON contain the name of a group. Lines in the format "text" do
  /// not contain it.
  Log about(std::string_view group) const;

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
  /// Writes each line of `text` as a separate log line.
  void write(LogLevel level, std::string_view text) const noexcept;

 private:
  void write_formatted(LogLevel level, fmt::string_view format,
                       fmt::format_args args) const noexcept;

  LogLevel level_;
  bool is_json_ = false;
  int rank_;  ///< Rank in the log lines; negative if it is unknown.
  std::string group_ = {};
  std::shared_ptr<spdlog::logger> logger_;  ///< Writes to standard error; unused with a file.
  std::shared_ptr<const LogFile> file_;     ///< Null if lines go to standard error.
};

}  // namespace mccl
