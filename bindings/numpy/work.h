// One call as Python sees it.
#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <optional>
#include <string>

#include "mccl/work.h"
#include "numpy/arguments.h"

namespace mccl::numpy {

namespace nb = nanobind;

/// What a call needs of Python's until it is done, and what it gives then.
struct Kept {
  nb::object input;   ///< Memory that is read.
  nb::object output;  ///< Memory that is written.
  nb::object result;
};

/// Waits for a short while, helping the call along, so that signals are seen in between. Without
/// the GIL. False: the call goes on.
bool wait_a_while(const Work& work);

/// Waits until the call is done, running signal handlers meanwhile; with the GIL, which it gives up
/// while it waits. Throws what the call failed with, what a handler raised (KeyboardInterrupt), and
/// TimeoutError when `timeout` passes; after the latter two the call goes on.
void wait_with_signals(const Work& work, Timeout timeout);

/// Lets go of `kept` once the call is done, whoever has forgotten it.
void keep_until_done(const Work& work, Kept kept);

/// Python's Work.
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
  /// Calls `callback` without arguments on the callback thread.
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
