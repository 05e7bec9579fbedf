// The library's errors as classes of mccl.errors. Include it before anything that includes
// mccl/error.h.
#pragma once

#include <nanobind/nanobind.h>

// A module's symbols are hidden, and where the system compares exception types by address (macOS) a
// hidden type would not match the one that the library throws.
#pragma GCC visibility push(default)
#include "mccl/error.h"
#pragma GCC visibility pop

#include <exception>

namespace mccl::python {

namespace nb = nanobind;

/// Teaches nanobind the errors; the classes come from mccl.errors.
void bind_errors();

/// The Python exception for an error of the library; any other becomes a RuntimeError. With the
/// GIL.
nb::object python_error_of(const std::exception_ptr& error);

}  // namespace mccl::python
