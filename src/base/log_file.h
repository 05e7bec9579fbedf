// The log file of a rank.
#pragma once

#include <atomic>
#include <memory>

#include "mccl/config.h"

namespace spdlog {
class logger;
namespace sinks {
class sink;
}
}  // namespace spdlog

namespace mccl {

/// spdlog pattern for lines in JSON: the message alone, because it already contains the time.
inline constexpr const char* kJsonPattern = "%v";

/// Returns a logger for lines of text. `rank` is negative if it is unknown.
std::shared_ptr<spdlog::logger> make_logger(int rank, std::shared_ptr<spdlog::sinks::sink> sink);

/// A file to which only one process writes, because that process renames the file when it is full.
/// Objects of one process share a file of the same name. In a child of a fork, a copy of this
/// object writes to a file of the child's own. Thread-safe.
class LogFile {
 public:
  /// Throws Error if the file cannot be opened.
  LogFile(int rank, const LogOptions& options);
  ~LogFile();
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;

  /// Returns the logger of this process. The first call in a child of a fork opens the child's
  /// file, and throws Error if the file cannot be opened.
  spdlog::logger& logger() const;

 private:
  struct Opened;

  std::unique_ptr<Opened> open() const;

  const int rank_;
  const LogOptions options_;
  /// List of the loggers of this process and its ancestors, newest first, linked by
  /// Opened::ancestor. Owned by this object.
  mutable std::atomic<Opened*> opened_;
};

}  // namespace mccl
