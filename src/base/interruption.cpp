#include "base/interruption.h"

#include <signal.h>

#include <array>
#include <atomic>
#include <mutex>
#include <utility>

#include "base/fork.h"

namespace mccl {
namespace {

std::atomic<std::uint64_t> arrived{0};

/// One of the signals.
struct Watched {
  const int number;
  /// The program's handler. Written before on_signal() is installed, and then only read.
  struct sigaction program = {};
  bool is_installed = false;  ///< True while on_signal() is the handler.
  /// True if the program has replaced on_signal() by a handler that may call it. on_signal() is
  /// then not installed again, because the two would call each other.
  bool is_chained = false;
};
std::array<Watched, 2> signals = {{{SIGINT}, {SIGTERM}}};
int watchers = 0;
/// Guards `signals` and `watchers`, except that signal handlers read `signals` without it.
std::mutex mutex;
std::mutex& mutex_of_interruption() { return mutex; }

void on_signal(int number, siginfo_t* info, void* context) {
  arrived.fetch_add(1);
  const struct sigaction& program = signals[number == SIGINT ? 0 : 1].program;
  if ((program.sa_flags & SA_SIGINFO) != 0) return program.sa_sigaction(number, info, context);
  program.sa_handler(number);
}

bool has_handler(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) != 0 ||
         (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN);
}

void install(Watched& watched) {
  struct sigaction action = {};
  if (watched.is_chained || ::sigaction(watched.number, nullptr, &action) != 0 ||
      !has_handler(action))
    return;
  watched.program = action;
  action.sa_sigaction = &on_signal;
  action.sa_flags |= SA_SIGINFO;
  watched.is_installed = ::sigaction(watched.number, &action, nullptr) == 0;
}

void restore(Watched& watched) {
  struct sigaction action = {};
  if (!std::exchange(watched.is_installed, false) ||
      ::sigaction(watched.number, nullptr, &action) != 0)
    return;
  const bool is_ours = (action.sa_flags & SA_SIGINFO) != 0 && action.sa_sigaction == &on_signal;
  watched.is_chained = !is_ours;
  if (is_ours) ::sigaction(watched.number, &watched.program, nullptr);
}

}  // namespace

Interruption::Interruption() noexcept : before_(arrived.load()) {
  static std::once_flag once;
  std::call_once(once, hold_while_forking<mutex_of_interruption>);
  const std::lock_guard lock(mutex);
  if (watchers++ > 0) return;
  for (Watched& each : signals) install(each);
}

Interruption::~Interruption() {
  const std::lock_guard lock(mutex);
  if (--watchers > 0) return;
  for (Watched& each : signals) restore(each);
}

bool Interruption::has_arrived() const noexcept { return arrived.load() != before_; }

}  // namespace mccl
