#include "base/termination.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <utility>
#include <vector>

#include "base/thread.h"
#include "base/wake_pipe.h"
#include "mccl/error.h"

namespace mccl {
namespace {

/// Launchers send SIGKILL some seconds after SIGTERM.
constexpr std::chrono::seconds kPatience{3};

/// For the handler, which may do little: where to write, and in which process.
std::atomic<int> told_at{-1};
std::atomic<pid_t> listener{0};
std::atomic<bool> ending{false};

void on_signal(int number) {
  const int error = errno;
  if (listener.load() == ::getpid()) {
    ending.store(true);
    const char byte = 1;
    static_cast<void>(::write(told_at.load(), &byte, 1) == 1);
  } else {
    // The child of a fork, where nobody listens.
    ::signal(number, SIG_DFL);
    ::raise(number);
  }
  errno = error;
}

/// An exit that SIGTERM's errors have brought about waits for its end.
void wait_for_the_end() {
  if (!ending.load() || listener.load() != ::getpid()) return;
  for (int left = 2 * static_cast<int>(kPatience.count()); left > 0; --left) ::sleep(1);
}

[[noreturn]] void die_of_it() {
  ::signal(SIGTERM, SIG_DFL);
  sigset_t only;
  sigemptyset(&only);
  sigaddset(&only, SIGTERM);
  pthread_sigmask(SIG_UNBLOCK, &only, nullptr);
  ::raise(SIGTERM);
  ::_exit(128 + SIGTERM);
}

class Termination {
 public:
  void add(std::weak_ptr<void> owner, std::function<void()> end) {
    const std::lock_guard lock(mutex_);
    if (!listen()) return;
    std::erase_if(endings_, [](const Ending& each) { return each.owner.expired(); });
    endings_.push_back({std::move(owner), std::move(end)});
  }

 private:
  struct Ending {
    std::weak_ptr<void> owner;
    std::function<void()> end;
  };

  /// Whether it does, once for each process.
  bool listen() {
    if (listener.load() == ::getpid()) return true;
    struct sigaction before = {};
    if (::sigaction(SIGTERM, nullptr, &before) != 0) return false;
    const bool inherited = before.sa_handler == &on_signal;
    if (before.sa_handler != SIG_DFL && !inherited) return false;
    endings_.clear();
    // Never destroyed: a signal may come until the last moment.
    auto* pipe = new WakePipe;
    told_at.store(pipe->writing_end());
    try {
      start_thread("mccl term", [this, pipe] { wait(*pipe); }).detach();
    } catch (const Error&) {
      return false;  // the process dies of it as others do
    }
    listener.store(::getpid());
    std::atexit(&wait_for_the_end);
    struct sigaction ours = {};
    ours.sa_handler = &on_signal;
    ours.sa_flags = SA_RESTART;
    return ::sigaction(SIGTERM, &ours, nullptr) == 0;
  }

  void wait(WakePipe& pipe) {
    pollfd watched{pipe.descriptor(), POLLIN, 0};
    while (::poll(&watched, 1, -1) <= 0) {
    }
    start_thread("mccl end", [this] { end_all(); }).detach();
    std::unique_lock lock(done_mutex_);
    all_ended_.wait_for(lock, kPatience, [this] { return done_; });
    die_of_it();
  }

  void end_all() {
    std::vector<Ending> endings;
    {
      const std::lock_guard lock(mutex_);
      endings = endings_;
    }
    for (const Ending& each : endings) {
      const std::shared_ptr<void> alive = each.owner.lock();
      if (alive) each.end();
    }
    const std::lock_guard lock(done_mutex_);
    done_ = true;
    all_ended_.notify_all();
  }

  std::mutex mutex_;
  std::vector<Ending> endings_;  // guarded by mutex_
  std::mutex done_mutex_;
  std::condition_variable all_ended_;
  bool done_ = false;  // guarded by done_mutex_
};

}  // namespace

void at_termination(std::weak_ptr<void> owner, std::function<void()> end) {
  // Never destroyed either.
  static auto* termination = new Termination;
  termination->add(std::move(owner), std::move(end));
}

}  // namespace mccl
