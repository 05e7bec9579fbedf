// Long calls that know nothing of signals, and that Control-C must end all the same.
#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <future>
#include <memory>
#include <utility>

#include "base/thread.h"

namespace mccl::numpy {

/// result = action(), on a thread of its own, running signal handlers meanwhile. Call it with the
/// GIL, which it gives up while it waits; `action` runs without. Throws what `action` throws, or
/// what a handler raised (KeyboardInterrupt): then nobody waits for `action` any more, so it must
/// own what it uses.
template <typename Action, typename Result>
void run_interruptibly(Action&& action, Result& result) {
  constexpr std::chrono::milliseconds kSignalInterval{50};
  const auto task = std::make_shared<std::packaged_task<Result()>>(std::forward<Action>(action));
  std::future<Result> answer = task->get_future();
  start_thread("mccl join", [task] { (*task)(); }).detach();
  while (true) {
    {
      const nanobind::gil_scoped_release without_gil;
      if (answer.wait_for(kSignalInterval) == std::future_status::ready) break;
    }
    if (PyErr_CheckSignals() != 0) throw nanobind::python_error();
  }
  result = answer.get();
}

}  // namespace mccl::numpy
