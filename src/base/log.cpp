#include "base/log.h"

#include <fcntl.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/rotating_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/rank_path.h"
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

/// Number of full log files that are kept beside the current one.
constexpr std::size_t kFullFiles = 3;

/// The log files that this process has open. Only one object may write to a file that is renamed
/// when it is full. Thread-safe.
class LogFiles {
 public:
  /// Throws spdlog::spdlog_ex. `limit`: size in bytes at which a new file begins.
  spdlog::sink_ptr open(const std::string& path, std::size_t limit) {
    const std::lock_guard lock(mutex_);
    std::weak_ptr<spdlog::sinks::sink>& entry = files_[path];
    spdlog::sink_ptr file = entry.lock();
    if (!file)
      entry = file =
          std::make_shared<spdlog::sinks::rotating_file_sink_mt>(path, limit, kFullFiles);
    return file;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::weak_ptr<spdlog::sinks::sink>> files_;  // guarded by mutex_
};

LogFiles& log_files() {
  static LogFiles files;
  return files;
}

/// Constructs the logger directly. spdlog's factories would register its name, which must be unique
/// in the process, but several contexts may have the same rank.
std::shared_ptr<spdlog::logger> make_logger(int rank, spdlog::sink_ptr sink) {
  auto logger = std::make_shared<spdlog::logger>(
      rank < 0 ? "mccl" : fmt::format("mccl rank {}", rank), std::move(sink));
  logger->set_pattern("%Y-%m-%d %H:%M:%S.%e %v");
  logger->set_level(spdlog::level::trace);  // Log::enabled() has already checked the level
  logger->flush_on(spdlog::level::trace);   // a process that is killed must not lose lines
  return logger;
}

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
  for (const LevelName& entry : kLevels)
    if (equal_ignoring_case(entry.name, name)) return entry.level;
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
  if (!options.file.empty() && log_level_of(options.level) != LogLevel::off) {
    const std::string path = path_of_rank(options.file, std::max(0, rank), host_name(), ".log");
    try {
      logger_ = make_logger(rank, log_files().open(path, options.file_bytes));
      level_ = log_level_of(options.level);
    } catch (const spdlog::spdlog_ex& error) {
      warn("cannot log to the file {}: {}; standard error is used", path, error.what());
    }
  }
  if (is_json_) logger_->set_pattern("%v");
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

/// The logger reports its own errors and throws nothing.
void Log::write(LogLevel level, std::string_view text) const noexcept try {
  if (level == LogLevel::off || !enabled(level)) return;
  const LevelName& entry = entry_of(level);
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    if (is_json_) {
      logger_->log(entry.sink_level, json_line(entry.name, rank_, group_, line));
    } else {
      logger_->log(entry.sink_level, "{:<5} [{}] {}", entry.name, logger_->name(), line);
    }
    text.remove_prefix(std::min(text.size(), line.size() + 1));
  }
} catch (const std::exception&) {
  // Drops the line, because there is no memory for it.
}

}  // namespace mccl
