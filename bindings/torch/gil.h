// Python's lock, from code that may or may not hold it.
#pragma once

#include <Python.h>

namespace mccl_torch {

/// Gives up the interpreter lock for its lifetime if this thread holds it. Whatever may wait for
/// the engine's progress thread runs under one: that thread may itself need the lock, to drop a
/// tensor that Python knows or to run a future's callback.
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
