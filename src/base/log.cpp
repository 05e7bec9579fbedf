#include "base/log.h"

#include <fcntl.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <unistd.h>

#include <array>
#include <utility>

#include "base/value_text.h"
#include "mccl/error.h"

namespace mccl {

namespace {

struct LevelName {
  LogLevel level;
  std::string_view name;
  spdlog::level::level_enum sink_level;
};

constexpr std::array<LevelName, 7> kLevels = {{
    {LogLevel::trace, "TRACE", spdlog::level::trace},
    {LogLevel::debug, "DEBUG", spdlog::level::debug},
    {LogLevel::info, "INFO", spdlog::level::info},
    {LogLevel::warn, "WARN", spdlog::level::warn},
    {LogLevel::error, "ERROR", spdlog::level::err},
    {LogLevel::fatal, "FATAL", spdlog::level::critical},
    {LogLevel::off, "OFF", spdlog::level::off},
}};

const LevelName& entry_of(LogLevel level) { return kLevels[static_cast<std::size_t>(level)]; }

}  // namespace

LogLevel log_level_of(std::string_view name) {
  for (const LevelName& entry : kLevels)
    if (equal_ignoring_case(entry.name, name)) return entry.level;
  throw InvalidArgument(
      fmt::format("log level: expected TRACE, DEBUG, INFO, WARN, ERROR, FATAL or OFF; found {}",
                  in_quotes(name)));
}

/// A log that is made while standard error is closed stays off, because a file that is opened later
/// may get the descriptor number of standard error.
Log::Log(int rank, LogLevel level)
    : level_(::fcntl(STDERR_FILENO, F_GETFD) < 0 ? LogLevel::off : level) {
  const std::string who = rank < 0 ? "mccl" : fmt::format("mccl rank {}", rank);
  // Constructed directly, because spdlog's factories would enter the logger in a process-wide
  // registry: contexts are made and destroyed, and several may have the same rank.
  logger_ =
      std::make_shared<spdlog::logger>(who, std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger_->set_pattern("%Y-%m-%d %H:%M:%S.%e %v");
  logger_->set_level(spdlog::level::trace);  // enabled() filters by level instead
}

void Log::write_formatted(LogLevel level, fmt::string_view format,
                          fmt::format_args args) const noexcept {
  try {
    write(level, fmt::vformat(format, args));
  } catch (const std::exception&) {
    // Drops the line, because there is no memory for it.
  }
}

/// The logger reports its own errors and throws nothing.
void Log::write(LogLevel level, std::string_view text) const noexcept {
  if (level == LogLevel::off || !enabled(level)) return;
  const LevelName& entry = entry_of(level);
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    logger_->log(entry.sink_level, "{:<5} [{}] {}", entry.name, logger_->name(), line);
    text.remove_prefix(std::min(text.size(), line.size() + 1));
  }
}

}  // namespace mccl
