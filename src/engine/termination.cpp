#include "engine/termination.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/fork.h"
#include "base/thread.h"
#include "base/wake_pipe.h"
#include "mccl/error.h"

namespace mccl {
namespace {

/// Time limit for all registered functions together. It is short because launchers send SIGKILL
/// some seconds after SIGTERM.
constexpr std::chrono::seconds kPatience{3};

/// State for the signal handler, which may use only async-signal-safe functions: the descriptor to
/// write to, the process that listens, the number of threads in the handler, and whether the signal
/// has arrived.
std::atomic<int> wakes_at{-1};
std::atomic<pid_t> listener{0};
std::atomic<int> handling{0};
std::atomic<bool> ending{false};

/// Ends the process by the default action of SIGTERM. Async-signal-safe.
[[noreturn]] void die_of_it() {
  ::signal(SIGTERM, SIG_DFL);
  sigset_t only;
  sigemptyset(&only);
  sigaddset(&only, SIGTERM);
  pthread_sigmask(SIG_UNBLOCK, &only, nullptr);
  ::raise(SIGTERM);
  ::_exit(128 + SIGTERM);
}

void on_signal(int) {
  const int error = errno;
  handling.fetch_add(1);
  // In a forked child, or once all registered functions have been removed, there is no thread to
  // wake, so the signal ends the process immediately.
  if (listener.load() != ::getpid()) die_of_it();
  ending.store(true);
  const char byte = 1;
  static_cast<void>(::write(wakes_at.load(), &byte, 1) == 1);
  handling.fetch_sub(1);
  errno = error;
}

/// Runs at exit. The program may be exiting because of errors that the shutdown after SIGTERM has
/// caused. In that case, waits until the signal ends the process, for at most twice kPatience.
void wait_for_the_end() {
  if (!ending.load() || listener.load() != ::getpid()) return;
  for (int left = 2 * static_cast<int>(kPatience.count()); left > 0; --left) ::sleep(1);
}

class Termination {
 public:
  /// Registers `end` under the key `name`. Returns false if the program handles or ignores SIGTERM,
  /// or if no thread or no pipe can be made.
  bool add(const void* name, std::function<void()> end) {
    const std::lock_guard lock(mutex_);
    if (!listen()) return false;
    endings_.push_back({name, std::move(end)});
    return true;
  }

  std::mutex& mutex() { return mutex_; }

  void remove(const void* name) {
    // In a forked child, the entry belongs to the parent and is kept.
    if (listener.load() != ::getpid()) return;
    const std::lock_guard lock(mutex_);
    std::erase_if(endings_, [name](const Ending& each) { return each.name == name; });
    if (endings_.empty()) stop_listening();
  }

 private:
  struct Ending {
    const void* name;
    std::function<void()> end;
  };

  /// Installs the handler and starts the thread, once per process. Returns false in the same cases
  /// as add().
  bool listen() {
    if (listener.load() == ::getpid()) return true;
    struct sigaction before = {};
    if (::sigaction(SIGTERM, nullptr, &before) != 0) return false;
    const bool inherited = before.sa_handler == &on_signal;
    if (before.sa_handler != SIG_DFL && !inherited) return false;
    // After a fork, the parent's thread does not exist in this process and cannot be joined.
    static_cast<void>(thread_.release());
    endings_.clear();
    handling.store(0);
    try {
      pipe_ = std::make_unique<WakePipe>();
      wakes_at.store(pipe_->writing_end());
      thread_ = std::make_unique<std::thread>(
          start_thread("mccl term", [this, end = pipe_->descriptor()] { wait(end); }));
    } catch (const Error&) {
      return false;  // SIGTERM then ends the process immediately
    }
    listener.store(::getpid());
    [[maybe_unused]] static const int registered = std::atexit(&wait_for_the_end);
    struct sigaction ours = {};
    ours.sa_handler = &on_signal;
    ours.sa_flags = SA_RESTART;
    return ::sigaction(SIGTERM, &ours, nullptr) == 0;
  }

  /// Restores the default action of SIGTERM and ends the thread. No-op if SIGTERM has arrived,
  /// because wait() is then about to end the process.
  void stop_listening() {
    listener.store(0);
    while (handling.load() > 0) std::this_thread::yield();
    if (ending.load()) {
      listener.store(::getpid());
      return;
    }
    struct sigaction now = {};
    if (::sigaction(SIGTERM, nullptr, &now) == 0 && now.sa_handler == &on_signal)
      ::signal(SIGTERM, SIG_DFL);
    pipe_->wake();
    thread_->join();
    thread_.reset();
  }

  void wait(int wakes) {
    pollfd watched{wakes, POLLIN, 0};
    while (::poll(&watched, 1, -1) <= 0) {
    }
    if (!ending.load()) return;
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
    // In threads of their own, so that none waits for another that takes long.
    std::vector<std::thread> threads;
    for (const Ending& each : endings) {
      try {
        threads.push_back(start_thread("mccl end", each.end));
      } catch (const Error&) {
        each.end();
      }
    }
    for (std::thread& thread : threads) thread.join();
    const std::lock_guard lock(done_mutex_);
    done_ = true;
    all_ended_.notify_all();
  }

  std::mutex mutex_;
  // Guarded by mutex_:
  std::vector<Ending> endings_;
  std::unique_ptr<WakePipe> pipe_;
  std::unique_ptr<std::thread> thread_;

  std::mutex done_mutex_;
  std::condition_variable all_ended_;
  bool done_ = false;  // guarded by done_mutex_
};

std::mutex& mutex_of_termination();

/// Never destroyed, because a signal may arrive until the process ends.
Termination& the_termination() {
  static auto* const termination = [] {
    hold_while_forking<mutex_of_termination>();
    return new Termination;
  }();
  return *termination;
}

std::mutex& mutex_of_termination() { return the_termination().mutex(); }

}  // namespace

std::shared_ptr<void> at_termination(std::function<void()> end) {
  auto name = std::make_unique<char>();
  if (!the_termination().add(name.get(), std::move(end))) return nullptr;
  return {name.release(), [](char* added) {
            the_termination().remove(added);
            delete added;
          }};
}

}  // namespace mccl
