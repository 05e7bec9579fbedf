// Shares one Metrics between the extension modules of a process, so that the metrics cover the
// groups of every framework. `mccl._core` owns the Metrics. This file uses only Python's C API, so
// that it works in extensions of both nanobind and pybind11.
#pragma once

#include <Python.h>

#include <memory>

#include "mccl/error.h"
#include "mccl/metrics.h"

namespace mccl::python {

/// Name of the capsule, which owns the `std::shared_ptr<Metrics>*` that it holds.
inline constexpr const char* kMetricsCapsule = "mccl.metrics";

/// Returns the Metrics to pass in ContextOptions::metrics when a group is made. After this call,
/// Python's get_metrics() no longer returns None, and the lines of log_metrics() contain `rank`.
/// Call it with the GIL held. Throws Error if the extension modules are from different builds.
inline std::shared_ptr<Metrics> shared_metrics(int rank) {
  struct Release {
    void operator()(PyObject* object) const { Py_DECREF(object); }
  };
  using Owned = std::unique_ptr<PyObject, Release>;
  const Owned module(PyImport_ImportModule("mccl._core"));
  const Owned capsule(module ? PyObject_CallMethod(module.get(), "share_metrics", "i", rank)
                             : nullptr);
  const void* pointer = capsule ? PyCapsule_GetPointer(capsule.get(), kMetricsCapsule) : nullptr;
  if (pointer == nullptr) {
    PyErr_Clear();
    throw Error(
        "mccl._core provides no metrics, because the extensions of mccl do not match; reinstall "
        "mccl");
  }
  return *static_cast<const std::shared_ptr<Metrics>*>(pointer);
}

}  // namespace mccl::python
