#include "signals.h"

#include <pybind11/pybind11.h>

#include <algorithm>
#include <string>

#include "mccl/error.h"

namespace mccl_torch {
namespace {

namespace py = pybind11;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

unsigned long main_thread = 0;

/// Whether the call has ended by then, and well.
bool ends_within(const mccl::Work& work, milliseconds limit) {
  try {
    work.wait(limit);
    return true;
  } catch (const mccl::TimeoutError&) {
    if (!work.done()) return false;
    // Done meanwhile: what counts is how the call ended, not that this wait did.
    if (const std::exception_ptr error = work.error()) std::rethrow_exception(error);
    return true;
  }
}

}  // namespace

void find_main_thread() {
  const py::object thread = py::module_::import("threading").attr("main_thread")();
  main_thread = thread.attr("ident").cast<unsigned long>();
}

void check_signals() {
  if (PyThread_get_thread_ident() != main_thread) return;
  const py::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

void wait_with_signals(const mccl::Work& work, std::optional<milliseconds> timeout) {
  if (PyThread_get_thread_ident() != main_thread) return work.wait(timeout);
  const bool bounded = timeout && timeout->count() > 0;
  const auto end = bounded ? Clock::now() + *timeout : Clock::time_point::max();
  while (true) {
    if (bounded) {
      const auto left = std::chrono::ceil<milliseconds>(end - Clock::now());
      if (left <= kSignalInterval) {
        if (ends_within(work, std::max(left, milliseconds(1)))) return;
        throw mccl::TimeoutError("the call is not done after " + std::to_string(timeout->count()) +
                                 " ms; it goes on until its own timeout");
      }
    }
    if (ends_within(work, kSignalInterval)) return;
    check_signals();
  }
}

}  // namespace mccl_torch
