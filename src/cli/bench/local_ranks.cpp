#include "cli/bench/local_ranks.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#ifdef __linux__
#include <sys/prctl.h>
#endif

#include "base/clock.h"
#include "base/thread.h"
#include "cli/command.h"
#include "cli/launch/watch.h"
#include "mccl/error.h"

namespace mccl::cli::bench {
namespace {

using namespace std::chrono_literals;

/// Time for the other ranks to end by themselves after one has failed.
constexpr auto kGrace = 2s;
constexpr std::size_t kLongestReport = 4096;

struct Child {
  pid_t pid = -1;
  Descriptor report;  ///< Pipe for the error message; closed once the process has ended.
  std::string message;
  std::optional<int> status;
  bool killed_by_us = false;

  bool failed() const { return status && *status != 0; }
};

/// Ends this process when its parent ends. On Linux, the kernel does so. On all systems, a thread
/// also waits for the end of a pipe that only the parent holds open.
void die_with(pid_t parent, Descriptor life) {
#ifdef __linux__
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
  if (::getppid() != parent) ::_exit(kFailed);
  start_thread("mccl parent", [life = std::make_shared<Descriptor>(std::move(life))] {
    char byte = 0;
    read_some(life->get(), &byte, 1);
    ::_exit(kFailed);
  }).detach();
}

/// Binds a rank to a core of its own if there are enough cores, as MPI's launchers do. Without
/// that, the system may put two ranks on one core, where they wait for each other. Does nothing on
/// systems other than Linux.
void bind_to_core([[maybe_unused]] int rank, [[maybe_unused]] int ranks) {
#ifdef __linux__
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) < ranks) return;
  int core = 0;
  for (int left = rank; left > 0 || !CPU_ISSET(core, &allowed); ++core) {
    if (CPU_ISSET(core, &allowed)) --left;
  }
  cpu_set_t own;
  CPU_ZERO(&own);
  CPU_SET(core, &own);
  ::sched_setaffinity(0, sizeof own, &own);
#endif
}

/// Runs the rank and exits without destructors, because the objects belong to the parent.
[[noreturn]] void be_rank(int rank, PortPipe& port, const RankBody& body, Descriptor report) {
  std::string message;
  try {
    body(rank, port);
  } catch (const std::exception& error) {
    message = error.what();
    if (message.empty()) message = "failed without an error message";
    message.resize(std::min(message.size(), kLongestReport));
  }
  std::fflush(nullptr);
  if (message.empty()) ::_exit(kGood);
  // The write fails if the parent has ended. Then no report is needed.
  std::signal(SIGPIPE, SIG_IGN);
  [[maybe_unused]] const ssize_t n = ::write(report.get(), message.data(), message.size());
  ::_exit(kFailed);
}

std::string cause_of(const Child& child, int rank) {
  if (WIFSIGNALED(*child.status)) {
    const int signal = WTERMSIG(*child.status);
    return fmt::format("rank {} was killed by signal {} ({})", rank, signal, ::strsignal(signal));
  }
  if (!child.message.empty()) return child.message;
  return fmt::format("rank {} ended with status {} and no error message", rank,
                     WEXITSTATUS(*child.status));
}

class Family {
 public:
  explicit Family(int ranks) : ranks_(ranks), port_(ranks) {}
  ~Family() { end_all(); }
  Family(const Family&) = delete;
  Family& operator=(const Family&) = delete;

  void start(int rank, const RankBody& body);
  /// Blocks until all have ended.
  void watch();
  /// The first cause of a failure. Empty if nothing failed.
  std::string failure() const;

 private:
  void listen(Child& child);
  void reap(Child& child);
  void end_all();

  const int ranks_;
  PortPipe port_;
  Pipe life_ = make_pipe();
  std::vector<Child> children_;
  std::vector<std::size_t> failed_;  ///< Ranks, in the order of detection.
};

void Family::start(int rank, const RankBody& body) {
  Pipe report = make_pipe();
  std::fflush(nullptr);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) {
    throw Error(
        fmt::format("cannot start rank {}: {}; start fewer ranks", rank, std::strerror(errno)));
  }
  if (pid == 0) {
    children_.clear();
    life_.writer.close();
    report.reader.close();
    die_with(parent, std::move(life_.reader));
    bind_to_core(rank, ranks_);
    be_rank(rank, port_, body, std::move(report.writer));
  }
  children_.push_back(
      {.pid = pid, .report = std::move(report.reader), .message = {}, .status = {}});
}

void Family::watch() {
  port_.close();
  std::optional<Clock::time_point> deadline;
  for (;;) {
    launch::Watch watch;
    bool some_run = false;
    for (Child& child : children_) {
      if (child.status) continue;
      some_run = true;
      watch.on(child.report.get(), POLLIN, [this, &child] { listen(child); });
    }
    if (!some_run) return;
    if (!failed_.empty() && !deadline) deadline = Clock::now() + kGrace;
    if (deadline && Clock::now() >= *deadline) return end_all();
    if (deadline) watch.at(*deadline);
    watch.wait();
  }
}

/// Reads the report. Its pipe ends when the process does.
void Family::listen(Child& child) {
  std::array<char, kLongestReport> text;
  const ssize_t n = read_some(child.report.get(), text.data(), text.size());
  if (n > 0) {
    child.message.append(text.data(), static_cast<std::size_t>(n));
  } else {
    reap(child);
  }
}

void Family::reap(Child& child) {
  int status = 0;
  while (::waitpid(child.pid, &status, 0) < 0) {
    if (errno == EINTR) continue;
    status = W_EXITCODE(kFailed, 0);
    break;
  }
  child.status = status;
  child.report.close();
  if (child.failed() && !child.killed_by_us)
    failed_.push_back(static_cast<std::size_t>(&child - children_.data()));
}

void Family::end_all() {
  for (Child& child : children_) {
    if (child.status) continue;
    child.killed_by_us = true;
    ::kill(child.pid, SIGKILL);
  }
  for (Child& child : children_)
    if (!child.status) reap(child);
}

/// Prefers a rank that was killed by a signal. It makes the others fail, and their failures may be
/// noticed first.
std::string Family::failure() const {
  if (failed_.empty()) return {};
  std::size_t first = failed_.front();
  for (const std::size_t rank : failed_) {
    if (!WIFSIGNALED(*children_[rank].status)) continue;
    first = rank;
    break;
  }
  return cause_of(children_[first], static_cast<int>(first));
}

}  // namespace

int run_local_ranks(int ranks, const char* who, const RankBody& body) {
  Family family(ranks);
  for (int rank = 0; rank < ranks; ++rank) family.start(rank, body);
  family.watch();
  const std::string failure = family.failure();
  if (failure.empty()) return kGood;
  fmt::print(stderr, "{}: {}\n", who, failure);
  return kFailed;
}

}  // namespace mccl::cli::bench
