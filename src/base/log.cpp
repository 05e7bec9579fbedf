#include "base/log.h"

#include <fcntl.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <nlohmann/json.hpp>

#include "base/log_file.h"
#include "base/value_text.h"
#include "mccl/error.h"

namespace mccl {

namespace {

/// Names of the levels, in the order of LogLevel, which is also the order of spdlog's levels.
constexpr std::array<std::string_view, 7> kLevelNames = {"TRACE", "DEBUG", "INFO", "WARN",
                                                         "ERROR", "FATAL", "OFF"};
static_assert(static_cast<int>(LogLevel::warn) == SPDLOG_LEVEL_WARN &&
              static_cast<int>(LogLevel::off) == SPDLOG_LEVEL_OFF);

std::string json_line(std::string_view level, int rank, const std::string& group,
                      std::string_view message) {
  using std::chrono::system_clock;
  const auto now = std::chrono::floor<std::chrono::milliseconds>(system_clock::now());
  const std::time_t seconds = system_clock::to_time_t(now);
  std::tm utc = {};
  ::gmtime_r(&seconds, &utc);
  char second[sizeof "9999-12-31T23:59:59"] = {};
  std::strftime(second, sizeof second, "%FT%T", &utc);
  nlohmann::ordered_json line = {
      {"time", fmt::format("{}.{:03}Z", second, now.time_since_epoch().count() % 1000)},
      {"level", level}};
  if (rank >= 0) line["rank"] = rank;
  if (!group.empty()) line["group"] = group;
  line["message"] = message;
  return line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace

LogLevel log_level_of(std::string_view name) {
  for (std::size_t level = 0; level < kLevelNames.size(); ++level)
    if (equal_ignoring_case(kLevelNames[level], name)) return static_cast<LogLevel>(level);
  throw InvalidArgument(
      fmt::format("log level: expected TRACE, DEBUG, INFO, WARN, ERROR, FATAL or OFF; found {}",
                  in_quotes(name)));
}

Log::Log(int rank, LogLevel level)
    : level_(::fcntl(STDERR_FILENO, F_GETFD) < 0 ? LogLevel::off : level),
      rank_(rank),
      logger_(make_logger(rank, std::make_shared<spdlog::sinks::stderr_sink_mt>())) {
  // A log that is made while standard error is closed stays off, because a file that is opened
  // later may get the descriptor number of standard error.
}

Log::Log(int rank, const LogOptions& options) : Log(rank, log_level_of(options.level)) {
  is_json_ = options.format == "json";
  if (is_json_) logger_->set_pattern(kJsonPattern);
  if (!options.file.empty() && log_level_of(options.level) != LogLevel::off) {
    try {
      file_ = std::make_shared<const LogFile>(rank, options);
      level_ = log_level_of(options.level);
    } catch (const Error& error) {
      warn("{}; standard error is used", error.what());
    }
  }
}

Log Log::about(std::string_view group) const {
  Log log = *this;
  if (is_json_) log.group_ = group;
  return log;
}

void Log::write_formatted(LogLevel level, fmt::string_view format,
                          fmt::format_args args) const noexcept {
  try {
    write(level, fmt::vformat(format, args));
  } catch (const std::exception&) {
    // Drops the line, because there is no memory for it.
  }
}

/// spdlog's log() catches its own errors. The handler below catches the errors of all other calls
/// in this function.
void Log::write(LogLevel level, std::string_view text) const noexcept try {
  if (level == LogLevel::off || !enabled(level)) return;
  const auto sink_level = static_cast<spdlog::level::level_enum>(level);
  const std::string_view name = kLevelNames[static_cast<std::size_t>(level)];
  spdlog::logger& logger = file_ ? file_->logger() : *logger_;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    if (is_json_) {
      logger.log(sink_level, json_line(name, rank_, group_, line));
    } else {
      logger.log(sink_level, "{:<5} [{}] {}", name, logger.name(), line);
    }
    text.remove_prefix(std::min(text.size(), line.size() + 1));
  }
} catch (const std::exception&) {
  // Drops the line: there is no memory for it, or the child of a fork cannot open its file.
}

}  // namespace mccl
