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

/// Handle of one call. Cheap to copy; all copies refer to the same call. Thread-safe. Destroying
/// all handles does not cancel the call, so the caller's memory must stay valid until the call is
/// done.
class MCCL_API Work {
 public:
  /// Receives the error of the call, or null if it succeeded.
  using Callback = std::function<void(std::exception_ptr)>;

  /// Constructs a Work that is already done.
  Work();
  explicit Work(std::shared_ptr<detail::WorkState> state);

  /// Blocks until the call is done; meanwhile this thread helps to carry it out. Throws the error
  /// of a failed call. Throws TimeoutError if a positive `timeout` passes first; the call itself
  /// continues until its own timeout.
  void wait(std::optional<std::chrono::milliseconds> timeout = {}) const;

  /// Does the same as wait(), and also runs `between` after each `slice` of time until the call is
  /// done. Useful, for example, on a thread that must also handle signals. An exception thrown by
  /// `between` ends the wait; the call continues.
  void wait_in_slices(std::optional<std::chrono::milliseconds> timeout,
                      std::chrono::milliseconds slice, const std::function<void()>& between) const;

  /// Makes `stream` wait for the call: work submitted to the stream later runs after the call.
  /// `stream` must belong to the device of the call's memory. The host does not block. If the call
  /// fails, wait(), error() and all later calls of the group report it, and the contents of the
  /// memory are undefined. For calls on host memory, blocks like wait().
  void wait_on_stream(void* stream) const;

  /// True once the call has succeeded or failed.
  bool done() const;

  /// The error of a failed call; null while the call runs and if it succeeded.
  std::exception_ptr error() const;

  /// Rank that sent the message of a completed recv(); -1 before it completes, and for any other
  /// call.
  int source() const;

  /// Runs `callback` once the call is done, on the thread that finishes it. If the call is done
  /// already, runs `callback` immediately on this thread. `callback` must not block on another call
  /// of the same context, must not throw, and should return soon. If it runs on the progress
  /// thread, all other calls stall until it returns. If it takes longer than
  /// Config::liveness_interval, the other ranks treat this rank as dead.
  void on_done(Callback callback) const;

  /// Makes one Work for all of `parts`. It is done once they are all done, and fails with the first
  /// error among them.
  static Work all_of(std::vector<Work> parts);

 private:
  std::shared_ptr<detail::WorkState> state_;
};

}  // namespace mccl
