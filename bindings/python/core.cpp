// mccl._core: what the Python package needs of the library without a framework.
#include <nanobind/nanobind.h>

#include <exception>

// A module's symbols are hidden, and where the system compares exception types by address (macOS) a
// hidden type would not match the one that the library throws.
#pragma GCC visibility push(default)
#include "mccl/error.h"
#pragma GCC visibility pop

#include "python/configuration.h"
#include "python/process_metrics.h"

namespace nb = nanobind;

NB_MODULE(_core, module) {
  module.doc() = "Settings and metrics of libmccl.";
  nb::register_exception_translator(
      [](const std::exception_ptr& thrown, void*) {
        try {
          std::rethrow_exception(thrown);
        } catch (const mccl::InvalidArgument& error) {
          PyErr_SetString(PyExc_ValueError, error.what());
        }
      },
      nullptr);
  mccl::python::bind_configuration(module);
  mccl::python::bind_metrics(module);
}
