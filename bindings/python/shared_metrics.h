// How the extension modules of a process share one Metrics, so that metrics speak of all its groups
// whichever framework made them. `mccl._core` owns it; this is how another module, of whatever
// binding library, gets at it.
#pragma once

#include <Python.h>

#include <memory>

#include "mccl/error.h"
#include "mccl/metrics.h"

namespace mccl::python {

/// The capsule holds a `std::shared_ptr<Metrics>*` that it owns.
inline constexpr const char* kMetricsCapsule = "mccl.metrics";

/// For ContextOptions::metrics, when a group is made: from then on get_metrics() has an answer.
/// `rank` marks the lines of log_metrics(). Call it with the GIL held. Throws Error.
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
    throw Error("mccl._core gives no metrics; reinstall mccl, whose extensions do not match");
  }
  return *static_cast<const std::shared_ptr<Metrics>*>(pointer);
}

}  // namespace mccl::python
