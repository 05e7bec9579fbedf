// Releases the GIL in code that may or may not hold it.
#pragma once

#include <Python.h>

namespace mccl_torch {

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
