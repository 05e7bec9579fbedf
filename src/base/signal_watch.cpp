#include "base/signal_watch.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <mutex>
#include <utility>

#include "base/fork.h"

namespace mccl {
namespace {

std::atomic<unsigned> arrived{0};
static_assert(std::atomic<unsigned>::is_always_lock_free);
/// Number of calls of on_signal() in progress, on all threads. A handler that the program has
/// installed meanwhile may call on_signal(), which calls that handler. kMostNested ends this chain.
std::atomic<int> nested{0};
constexpr int kMostNested = 4;

/// One of the signals.
struct Watched {
  const int number;
  /// The program's handler, which on_signal() calls. Written only while on_signal() is not
  /// installed.
  struct sigaction program = {};
};
std::array<Watched, 2> watched_signals = {{{SIGINT}, {SIGTERM}}};
int watchers = 0;
pid_t process = 0;  ///< The process in which `watchers` counts.
/// Guards the three variables above, except that signal handlers read `watched_signals` without it.
std::mutex mutex;
std::mutex& mutex_of_signal_watch() { return mutex; }

void on_signal(int number, siginfo_t* info, void* context) {
  arrived.fetch_add(1);
  const struct sigaction& program = watched_signals[number == SIGINT ? 0 : 1].program;
  if (nested.fetch_add(1) < kMostNested) {
    if ((program.sa_flags & SA_SIGINFO) != 0) {
      program.sa_sigaction(number, info, context);
    } else {
      program.sa_handler(number);
    }
  }
  nested.fetch_sub(1);
}

bool is_ours(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) != 0 && action.sa_sigaction == &on_signal;
}

bool has_handler(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) != 0 ||
         (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN);
}

void install(Watched& watched) {
  struct sigaction action = {};
  if (::sigaction(watched.number, nullptr, &action) != 0 || !has_handler(action) || is_ours(action))
    return;
  watched.program = action;
  action.sa_sigaction = &on_signal;
  action.sa_flags |= SA_SIGINFO;
  ::sigaction(watched.number, &action, nullptr);
}

void restore(const Watched& watched) {
  struct sigaction action = {};
  if (::sigaction(watched.number, nullptr, &action) == 0 && is_ours(action))
    ::sigaction(watched.number, &watched.program, nullptr);
}

}  // namespace

SignalWatch::SignalWatch() noexcept : before_(arrived.load()) {
  static std::once_flag once;
  std::call_once(once, hold_while_forking<mutex_of_signal_watch>);
  const std::lock_guard lock(mutex);
  if (std::exchange(process, ::getpid()) != ::getpid()) watchers = 0;  // a child of a fork
  if (watchers++ > 0) return;
  for (Watched& each : watched_signals) install(each);
}

SignalWatch::~SignalWatch() {
  const std::lock_guard lock(mutex);
  if (--watchers > 0) return;
  for (const Watched& each : watched_signals) restore(each);
}

bool SignalWatch::has_arrived() const noexcept { return arrived.load() != before_; }

}  // namespace mccl
