#include "engine/record_signal.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <mutex>
#include <thread>

#include "base/fork.h"

namespace mccl::engine {
namespace {

/// Data of one object that on_record_signal() returned. The signal handler reads them, and may use
/// only lock-free atomics and write(2).
struct WokenContext {
  std::atomic<std::atomic<bool>*> flag{nullptr};  ///< Null if this element is not in use.
  std::atomic<int> wake_end{-1};
};
constexpr std::size_t kMostContexts = 64;

std::array<WokenContext, kMostContexts> woken_contexts;
std::atomic<int> handling{0};  ///< Number of threads that are in the handler.

void on_signal(int) {
  const int error = errno;
  handling.fetch_add(1);
  for (WokenContext& context : woken_contexts) {
    std::atomic<bool>* const flag = context.flag.load();
    if (!flag) continue;
    flag->store(true);
    const char byte = 1;
    static_cast<void>(::write(context.wake_end.load(), &byte, 1) == 1);
  }
  handling.fetch_sub(1);
  errno = error;
}

/// Guards changes of `woken_contexts` and of the handlers. Never destroyed.
std::mutex& registry_mutex() {
  static auto& mutex = *new std::mutex;
  return mutex;
}

/// Installs the handler. Returns false if the program handles or ignores the signal.
bool install(int signal) {
  struct sigaction now = {};
  if (::sigaction(signal, nullptr, &now) != 0) return false;
  if (now.sa_handler == &on_signal) return true;
  if ((now.sa_flags & SA_SIGINFO) != 0 || now.sa_handler != SIG_DFL) return false;
  struct sigaction ours = {};
  ours.sa_handler = &on_signal;
  ours.sa_flags = SA_RESTART;
  return ::sigaction(signal, &ours, nullptr) == 0;
}

/// Marks the element as unused, and waits until no handler uses it. The handler stays installed,
/// because the signal's default action would end the process if an operator sends the signal just
/// after the job's last group has ended.
void remove(WokenContext& context) {
  const std::lock_guard lock(registry_mutex());
  context.flag.store(nullptr);
  while (handling.load() > 0) std::this_thread::yield();
}

}  // namespace

std::shared_ptr<void> on_record_signal(std::string_view name, std::atomic<bool>& flag,
                                       int wake_end) {
  static std::once_flag once;
  std::call_once(once, hold_while_forking<registry_mutex>);
  const std::lock_guard lock(registry_mutex());
  for (WokenContext& context : woken_contexts) {
    if (context.flag.load()) continue;
    if (!install(name == "USR1" ? SIGUSR1 : SIGUSR2)) return nullptr;
    context.wake_end.store(wake_end);
    context.flag.store(&flag);
    return {&context, [](WokenContext* freed) { remove(*freed); }};
  }
  return nullptr;
}

}  // namespace mccl::engine
