// The library's errors as classes of mccl.errors. Include this file before any file that includes
// mccl/error.h.
#pragma once

#include <nanobind/nanobind.h>

// A module's symbols are hidden. On systems that compare exception types by address (macOS), a
// hidden type would not match the type that the library throws.
#pragma GCC visibility push(default)
#include "mccl/error.h"
#pragma GCC visibility pop

#include <exception>

namespace mccl::python {

namespace nb = nanobind;

/// Registers the errors with nanobind, as the classes of mccl.errors.
void bind_errors();

/// Returns the Python exception for an error of the library; for any other exception, a
/// RuntimeError. Must be called with the GIL held.
nb::object python_error_of(const std::exception_ptr& error);

}  // namespace mccl::python
