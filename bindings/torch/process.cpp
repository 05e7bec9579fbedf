#include "process.h"

#include <pthread.h>
#include <pybind11/pybind11.h>

#include <atomic>

namespace mccl_torch {
namespace {

std::atomic<std::uint32_t> forks{0};

[[maybe_unused]] const int registered =
    pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });

namespace py = pybind11;
using std::chrono::milliseconds;

unsigned long main_thread = 0;

}  // namespace

std::uint32_t forks_so_far() { return forks.load(std::memory_order_relaxed); }

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
  work.wait_in_slices(timeout, kSignalInterval, check_signals);
}

}  // namespace mccl_torch
