#include "base/open_files.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <filesystem>
#include <iterator>
#include <limits>
#include <system_error>

namespace mccl {

void raise_open_files_limit() {
  static std::atomic<pid_t> raised_in{-1};  // per process: a forked child raises its own limit
  if (raised_in.exchange(::getpid()) == ::getpid()) return;
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  rlim_t most = limit.rlim_max;
#if defined(__APPLE__) && defined(OPEN_MAX)
  // macOS refuses a limit above OPEN_MAX, even if rlim_max allows it.
  most = std::min<rlim_t>(most, OPEN_MAX);
#endif
  if (limit.rlim_cur >= most) return;
  limit.rlim_cur = most;
  static_cast<void>(::setrlimit(RLIMIT_NOFILE, &limit) == 0);  // on failure the limit is unchanged
}

std::size_t open_files_limit() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return std::numeric_limits<std::size_t>::max();
  }
  return static_cast<std::size_t>(limit.rlim_cur);
}

std::size_t open_files() {
  std::error_code error;
  const std::filesystem::directory_iterator entries("/dev/fd", error);
  if (error) return 0;
  return static_cast<std::size_t>(std::distance(begin(entries), end(entries)));
}

std::string open_files_advice(int error) {
  if (error == ENFILE)
    return " (the host's limit for all processes together; raise it with sysctl fs.file-max)";
  if (error != EMFILE) return {};
  return fmt::format(" (this process may open {} files; raise the limit with ulimit -n)",
                     open_files_limit());
}

std::string describe_errno(int error) {
  return std::system_category().message(error) + open_files_advice(error);
}

bool lacks_files(int error) { return error == EMFILE || error == ENFILE; }

std::string without_files(int rank, int error) {
  return fmt::format("rank {} has no file descriptors left: too many open files{}", rank,
                     open_files_advice(error));
}

}  // namespace mccl
