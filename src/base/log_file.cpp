#include "base/log_file.h"

#include <fmt/format.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/rotating_file_sink.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "base/fork.h"
#include "base/rank_path.h"
#include "mccl/error.h"

namespace mccl {
namespace {

/// Number of full log files that are kept beside the current one.
constexpr std::size_t kFullFiles = 3;

std::mutex& mutex_of_log_files() {
  static std::mutex mutex;
  return mutex;
}

/// The log files that are open, by their paths. Thread-safe.
class LogFiles {
 public:
  LogFiles() { hold_while_forking<mutex_of_log_files>(); }

  /// Returns the sink of a file that only this process writes to. In a child of a fork, appends the
  /// process ID to the name of a file that its parent had open. Throws spdlog::spdlog_ex if the
  /// file cannot be opened.
  spdlog::sink_ptr open(std::string path, std::size_t limit) {
    const std::lock_guard lock(mutex_of_log_files());
    const pid_t process = ::getpid();
    const auto found = files_.find(path);
    if (found != files_.end() && !found->second.sink.expired() && found->second.process != process)
      path += fmt::format(".{}", process);
    File& file = files_[path];
    spdlog::sink_ptr sink = file.sink.lock();
    if (sink) return sink;
    // The file is unbuffered. Otherwise a child of a fork could inherit text in the buffer of its
    // parent's file, and write this text a second time.
    spdlog::file_event_handlers handlers;
    handlers.after_open = [](const std::string&, std::FILE* opened) {
      std::setvbuf(opened, nullptr, _IONBF, 0);
    };
    sink = std::make_shared<spdlog::sinks::rotating_file_sink_mt>(path, limit, kFullFiles, false,
                                                                  handlers);
    file = {process, sink};
    return sink;
  }

 private:
  struct File {
    pid_t process = 0;
    std::weak_ptr<spdlog::sinks::sink> sink;
  };

  std::map<std::string, File> files_;  // guarded by mutex_of_log_files()
};

LogFiles& log_files() {
  static LogFiles files;
  return files;
}

}  // namespace

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

/// The logger of one process. The loggers of its ancestors are kept, but not used, until the
/// LogFile is destroyed, because a thread that exists only in the parent may hold their locks.
struct LogFile::Opened {
  pid_t process;
  std::shared_ptr<spdlog::logger> logger;
  Opened* ancestor = nullptr;
};

LogFile::LogFile(int rank, const LogOptions& options)
    : rank_(rank), options_(options), opened_(open().release()) {}

LogFile::~LogFile() {
  for (Opened* each = opened_.load(); each != nullptr;) delete std::exchange(each, each->ancestor);
}

std::unique_ptr<LogFile::Opened> LogFile::open() const {
  const std::string path = path_of_rank(options_.file, std::max(0, rank_), host_name(), ".log");
  try {
    auto logger = make_logger(rank_, log_files().open(path, options_.file_bytes));
    if (options_.format == "json") logger->set_pattern(kJsonPattern);
    return std::unique_ptr<Opened>(new Opened{::getpid(), std::move(logger)});
  } catch (const spdlog::spdlog_ex& error) {
    throw Error(fmt::format("cannot log to the file {}: {}", path, error.what()));
  }
}

spdlog::logger& LogFile::logger() const {
  Opened* opened = opened_.load();
  if (opened->process == ::getpid()) return *opened->logger;
  std::unique_ptr<Opened> own = open();
  own->ancestor = opened;
  // If another thread of the child was faster, uses the logger of that thread.
  return *(opened_.compare_exchange_strong(opened, own.get()) ? own.release() : opened)->logger;
}

}  // namespace mccl
