// Converts the library's errors to the exceptions of mccl.errors. Include this file before any file
// that includes mccl/error.h.
#pragma once

#include <nanobind/nanobind.h>

// Makes the error types visible, although all other symbols of a module are hidden. On systems that
// compare exception types by address (macOS), a hidden type would not match the type that the
// library throws.
#pragma GCC visibility push(default)
#include "mccl/error.h"
#pragma GCC visibility pop

#include <exception>

namespace mccl::python {

namespace nb = nanobind;

/// Makes nanobind raise the library's errors as exceptions of mccl.errors.
void bind_errors();

/// Returns the Python exception for an error of the library; for any other exception, a
/// RuntimeError. Must be called with the GIL held.
nb::object python_error_of(const std::exception_ptr& error);

}  // namespace mccl::python
