// The handle of one call.
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

/// Cheap to copy; all copies speak of the same call. Thread-safe. Dropping every handle does not
/// cancel the call: the caller's memory must stay valid until it is done.
class MCCL_API Work {
 public:
  using Callback = std::function<void(std::exception_ptr)>;

  /// An already finished Work.
  Work();
  explicit Work(std::shared_ptr<detail::WorkState> state);

  /// Blocks until the call is done, and helps it along. Throws what the call failed with. With a
  /// timeout, throws TimeoutError when it passes first; the call itself goes on until its own.
  void wait(std::optional<std::chrono::milliseconds> timeout = {}) const;

  /// As wait(), and runs `between` after each `slice` of the time in which the call was not done:
  /// for a thread that must look after something else, too. What `between` throws ends the wait.
  void wait_in_slices(std::optional<std::chrono::milliseconds> timeout,
                      std::chrono::milliseconds slice, const std::function<void()>& between) const;

  /// What `stream`, of the device that the call's memory lies on, is given from now on runs after
  /// the call; the host goes on at once. What fails then is told by wait(), error() and every later
  /// call of the group, and the memory holds nothing of use. For calls of host memory as wait().
  void wait_on_stream(void* stream) const;

  bool done() const;

  /// What the call failed with; null while it runs and when it succeeded.
  std::exception_ptr error() const;

  /// The rank that a receive got its message from; -1 until done, and for other calls.
  int source() const;

  /// Runs `callback` once the call is done (at once if it is), on the thread that finishes it. It
  /// must not block on another call of the same context, nor throw. It should return soon: on the
  /// engine's own thread nothing else moves meanwhile, and when it lasts longer than the liveness
  /// interval (Config::liveness_interval) the other ranks give this one up.
  void on_done(Callback callback) const;

  /// A Work that is done when all of `parts` are, and fails with the first error among them.
  static Work all_of(std::vector<Work> parts);

 private:
  std::shared_ptr<detail::WorkState> state_;
};

}  // namespace mccl
