// The Python handle of one call.
#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <optional>
#include <string>

#include "mccl/work.h"
#include "numpy/arguments.h"

namespace mccl::numpy {

namespace nb = nanobind;

/// Python objects that a call needs until it is done, and the call's result.
struct Kept {
  nb::object input;   ///< Owner of the memory that the call reads.
  nb::object output;  ///< Owner of the memory that the call writes.
  nb::object result;
};

/// Waits for at most 50 ms, and helps to carry out the call meanwhile. Between two such waits, the
/// caller can handle signals. Call it without the GIL. Returns false if the call is not done.
/// Throws the call's error.
bool wait_a_while(const Work& work);

/// Waits until the call is done, and runs signal handlers meanwhile. Call it with the GIL held; it
/// releases the GIL while it waits. Throws the call's error, the exception of a handler
/// (KeyboardInterrupt), or TimeoutError when `timeout` passes. In the last two cases the call
/// continues.
void wait_with_signals(const Work& work, Timeout timeout);

/// Releases `kept` once the call is done, on the callback thread.
void keep_until_done(const Work& work, Kept kept);

/// Python's Work. Its functions need the GIL.
class ArrayWork {
 public:
  ArrayWork(const char* call, Work work, Kept kept);
  ArrayWork(ArrayWork&&) = default;
  ~ArrayWork();

  nb::object wait(nb::handle timeout);
  bool done() const { return work_.done(); }
  nb::object result();
  nb::object error() const;
  nb::object source() const;
  /// Calls `callback` without arguments, on the callback thread, once the call is done.
  void on_done(nb::callable callback) const;
  std::string repr() const;

 private:
  nb::object finished();

  const char* call_;
  Work work_;
  Kept kept_;
};

void bind_work(nb::module_& module);

}  // namespace mccl::numpy
