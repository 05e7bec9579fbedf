// Lets Control-C interrupt long calls that do not handle signals.
#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <future>
#include <memory>
#include <thread>
#include <utility>

#include "base/thread.h"

namespace mccl::numpy {

/// Runs result = action() on a new thread, and handles signals while it waits for that thread. Must
/// be called with the GIL held; releases it while it waits, and runs `action` without it. Throws
/// the exception of `action` or of a signal handler (KeyboardInterrupt). After a handler's
/// exception, `action` continues on its thread, so `action` must own everything that it uses.
template <typename Action, typename Result>
void run_interruptibly(Action&& action, Result& result) {
  constexpr std::chrono::milliseconds kSignalInterval{50};
  const auto task = std::make_shared<std::packaged_task<Result()>>(std::forward<Action>(action));
  std::future<Result> answer = task->get_future();
  std::thread thread = start_thread("mccl join", [task] { (*task)(); });
  while (true) {
    {
      const nanobind::gil_scoped_release without_gil;
      if (answer.wait_for(kSignalInterval) == std::future_status::ready) {
        // Wait until the thread has ended, because OpenSSL takes a lock when a thread ends. If the
        // program forked at that moment, the lock would stay locked in the child, which could then
        // not end.
        thread.join();
        break;
      }
    }
    if (PyErr_CheckSignals() != 0) {
      thread.detach();
      throw nanobind::python_error();
    }
  }
  result = answer.get();
}

}  // namespace mccl::numpy
