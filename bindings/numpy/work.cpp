#include "python/errors.h"
// The include above must stay first: it makes the error types visible to other libraries (see
// errors.h).
#include <fmt/format.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <utility>

#include "numpy/callback_thread.h"
#include "numpy/work.h"

namespace mccl::numpy {
namespace {

/// Maximum time for which a wait delays the handler of a signal.
constexpr std::chrono::milliseconds kSignalInterval{50};

}  // namespace

bool wait_a_while(const Work& work) {
  try {
    work.wait(kSignalInterval);
    return true;
  } catch (const TimeoutError&) {
    if (!work.done()) return false;
    // The call has ended in the meantime. Return its outcome instead of the timeout of this wait.
    if (const std::exception_ptr error = work.error()) std::rethrow_exception(error);
    return true;
  }
}

void wait_with_signals(const Work& work, Timeout timeout) {
  const nb::gil_scoped_release without_gil;
  work.wait_in_slices(timeout, kSignalInterval, [] {
    const nb::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  });
}

void keep_until_done(const Work& work, Kept kept) {
  // The engine holds a plain pointer, because its threads must not touch Python's reference counts.
  auto* held = new Kept(std::move(kept));
  work.on_done(
      [held](const std::exception_ptr&) { callback_thread().post([held] { delete held; }); });
}

ArrayWork::ArrayWork(const char* call, Work work, Kept kept)
    : call_(call), work_(std::move(work)), kept_(std::move(kept)) {}

ArrayWork::~ArrayWork() {
  const bool keeps = kept_.output.is_valid() || kept_.input.is_valid();
  if (keeps && !work_.done()) keep_until_done(work_, std::move(kept_));
}

nb::object ArrayWork::finished() {
  kept_.input = {};
  kept_.output = {};
  return kept_.result;
}

nb::object ArrayWork::wait(nb::handle timeout) {
  wait_with_signals(work_, timeout_of("wait", timeout));
  return finished();
}

nb::object ArrayWork::result() {
  if (!work_.done()) {
    throw Error(fmt::format("{} is not done, so it has no result yet: wait() or await it", call_));
  }
  if (const std::exception_ptr error = work_.error()) std::rethrow_exception(error);
  return finished();
}

nb::object ArrayWork::error() const {
  const std::exception_ptr error = work_.error();
  return error ? python::python_error_of(error) : nb::none();
}

nb::object ArrayWork::source() const {
  const int rank = work_.source();
  return rank < 0 ? nb::none() : nb::object(nb::int_(rank));
}

void ArrayWork::on_done(nb::callable callback) const {
  PyObject* held = callback.release().ptr();
  work_.on_done([held](const std::exception_ptr&) {
    callback_thread().post([held] {
      PyObject* answer = PyObject_CallNoArgs(held);
      if (answer == nullptr) PyErr_WriteUnraisable(held);
      Py_XDECREF(answer);
      Py_DECREF(held);
    });
  });
}

std::string ArrayWork::repr() const {
  const char* state = !done() ? "running" : work_.error() ? "failed" : "done";
  return fmt::format("<mccl.distributed.Work: {}, {}>", call_, state);
}

void bind_work(nb::module_& module) {
  using nb::literals::operator""_a;
  nb::class_<ArrayWork>(module, "Work",
                        "The handle of one call. Thread-safe.\n\n"
                        "Dropping it does not cancel the call; the arrays stay alive until the "
                        "call is done.\nInside asyncio, `await work` is the same as wait(); "
                        "cancelling the await does not cancel the call.")
      .def("wait", &ArrayWork::wait, "timeout"_a = nb::none(),
           "Blocks until the call is done, and advances it meanwhile.\n\n"
           "Args:\n"
           "    timeout: Seconds that this wait may last; None: until the call ends.\n\n"
           "Returns:\n"
           "    The result that the blocking call would return.\n\n"
           "Raises:\n"
           "    TimeoutError: `timeout` has passed, and the call continues; or the call itself "
           "timed out.\n"
           "    Error: The call failed for another reason.")
      .def("done", &ArrayWork::done, "True if the call has ended, with or without an error.")
      .def("result", &ArrayWork::result,
           "Returns or raises as wait() does, without waiting; raises Error while the call runs.")
      .def("error", &ArrayWork::error,
           "The exception of a failed call; None if the call succeeded or still runs.")
      .def_prop_ro(
          "source", &ArrayWork::source,
          "recv only: the rank that sent the message. None until the recv is done, and for other "
          "calls.")
      .def("on_done", &ArrayWork::on_done, "callback"_a,
           "Calls `callback()` once the call is done, on a thread of the library.\n\n"
           "All callbacks share that thread, so they must not wait for another call. Exceptions "
           "from a callback go to sys.unraisablehook.")
      .def("__await__",
           [](nb::handle self) {
             return nb::module_::import_("mccl.distributed")
                 .attr("_finish")(self)
                 .attr("__await__")();
           })
      .def("__repr__", &ArrayWork::repr);
}

}  // namespace mccl::numpy
