// Work, the handle of one call.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "mccl/export.h"

namespace mccl {

namespace detail {
class WorkState;
}

/// Handle of one call. Cheap to copy; all copies refer to the same call. Thread-safe. Dropping
/// every handle does not cancel the call: the caller's memory must stay valid until it is done.
class MCCL_API Work {
 public:
  /// Receives the error of the call, or null if it succeeded.
  using Callback = std::function<void(std::exception_ptr)>;

  /// Constructs a Work that is already done.
  Work();
  explicit Work(std::shared_ptr<detail::WorkState> state);

  /// Blocks until the call is done, and drives it meanwhile. Throws the error that the call failed
  /// with. With a positive timeout, throws TimeoutError if that passes first; the call itself
  /// continues until its own timeout.
  void wait(std::optional<std::chrono::milliseconds> timeout = {}) const;

  /// Like wait(), but runs `between` after each `slice` of time until the call is done, for a
  /// thread that must also do something else, such as handle signals. An exception of `between`
  /// ends the wait; the call continues.
  void wait_in_slices(std::optional<std::chrono::milliseconds> timeout,
                      std::chrono::milliseconds slice, const std::function<void()>& between) const;

  /// Makes `stream` wait for the call: its later work runs after the call. `stream` belongs to the
  /// device of the call's memory. The host does not block. If the call fails, wait(), error() and
  /// all later calls of the group report it, and the contents of the memory are undefined. Calls on
  /// host memory block as wait() does.
  void wait_on_stream(void* stream) const;

  /// True once the call has ended, with success or not.
  bool done() const;

  /// The error that the call failed with; null while it runs and if it succeeded.
  std::exception_ptr error() const;

  /// Sender of the message that a receive took; -1 until the call is done, and for other calls.
  int source() const;

  /// Runs `callback` once the call is done, on the thread that finishes it; at once on this thread
  /// if the call is already done. `callback` must not block on another call of the same context,
  /// must not throw, and should return soon. On the engine's own thread all other calls stall
  /// meanwhile. If it takes longer than the liveness interval (Config::liveness_interval), the
  /// other ranks treat this one as dead.
  void on_done(Callback callback) const;

  /// Makes a Work that is done once all of `parts` are, and that fails with the first error among
  /// them.
  static Work all_of(std::vector<Work> parts);

 private:
  std::shared_ptr<detail::WorkState> state_;
};

}  // namespace mccl
