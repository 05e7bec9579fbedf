// The state of the process: forks, signals and Python's global lock (the GIL).
#pragma once

#include <Python.h>

#include <chrono>
#include <cstdint>
#include <optional>

#include "mccl/work.h"

namespace mccl_torch {

/// Number of forks between the first process and this one. It distinguishes a forked child from the
/// process that made a group. Unlike getpid(), it needs no system call.
std::uint32_t forks_so_far();

/// Maximum time for which a wait delays the handler of a signal.
inline constexpr std::chrono::milliseconds kSignalInterval{50};

/// Finds the thread that runs signal handlers. Must be called once, with the GIL held.
void find_main_thread();

/// Runs the handlers of pending signals if this is the main thread; takes the GIL to do so. Throws
/// pybind11::error_already_set if a handler raised.
void check_signals();

/// Blocks until the call is done or `timeout` has passed, and runs signal handlers meanwhile. If a
/// handler raises, the wait ends and the call continues.
void wait_with_signals(const mccl::Work& work,
                       std::optional<std::chrono::milliseconds> timeout = {});

/// Releases the GIL for its lifetime if this thread holds it. Needed around any wait for the
/// engine's progress thread. That thread may need the GIL to free a tensor that Python references
/// or to run a future's callback.
class WithoutGil {
 public:
  WithoutGil() {
    if (Py_IsInitialized() && PyGILState_Check()) saved_ = PyEval_SaveThread();
  }
  ~WithoutGil() {
    if (saved_ != nullptr) PyEval_RestoreThread(saved_);
  }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* saved_ = nullptr;
};

}  // namespace mccl_torch
