// Finds the line of the Python program that makes a call. Uses only Python's C API, so that it
// works in extensions of both nanobind and pybind11.
#pragma once

#include "mccl/call_site.h"

namespace mccl::python {

/// Returns the innermost line of this thread's Python stack that is not in a file of mccl or torch.
/// Returns null if there is no such line, or if mccl::call_site() cannot keep another line. Takes
/// about 50 ns for a line that was found before. Call it with the GIL held.
const CallSite* line_of_caller() noexcept;

/// Like line_of_caller(), for a thread that has released the GIL; acquires the GIL during the
/// search. Returns null on a thread that runs no Python, such as those of torch's autograd engine
/// for GPUs.
const CallSite* line_of_caller_without_gil() noexcept;

}  // namespace mccl::python
