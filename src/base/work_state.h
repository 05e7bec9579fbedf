// The state behind the Work handles of a call.
#pragma once

#include <atomic>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "mccl/work.h"

namespace mccl::detail {

/// State of one call, shared by its Work handles and the code that runs it: whether it is done, its
/// error and its callbacks. `done_` is set last, with release order. A thread that sees it set
/// therefore also sees everything that the call has written.
class WorkState : public std::enable_shared_from_this<WorkState> {
 public:
  virtual ~WorkState() = default;

  bool done() const { return done_.load(std::memory_order_acquire); }
  std::exception_ptr error() const { return done() ? error_ : nullptr; }
  int source() const { return done() ? source_ : -1; }
  /// Describes the call in error messages.
  virtual std::string description() const = 0;

  void wait(std::optional<std::chrono::milliseconds> timeout);
  /// Advances the call on this thread until it is done or the deadline has passed.
  void wait_until(Clock::time_point deadline) {
    if (!done()) help(deadline);
  }
  [[noreturn]] void throw_not_done_after(std::chrono::milliseconds timeout) const;
  void on_done(Work::Callback callback);
  /// See Work::wait_on_stream. Returns false if only the host can wait.
  virtual bool wait_on_stream(void* /*stream*/) { return false; }

  /// Ends the call and wakes its waiters. No-op if the call has ended already. Returns the
  /// callbacks still to run, so that the caller can run them without a lock.
  [[nodiscard]] std::vector<Work::Callback> finish(std::exception_ptr error);
  /// Sleeps until the call is done or the deadline has passed.
  void sleep_until_done(Clock::time_point deadline);
  /// Records that a thread has stopped waiting for the call, which is not done.
  virtual void caller_left() {}

 protected:
  /// Advances the call on this thread until the call is done or the deadline has passed.
  virtual void help(Clock::time_point deadline) = 0;
  void set_source(int rank) { source_ = rank; }

 private:
  std::atomic<bool> done_{false};
  int source_ = -1;           // written before done_
  std::exception_ptr error_;  // written before done_
  std::mutex mutex_;
  std::condition_variable finished_;       // used with mutex_
  std::vector<Work::Callback> callbacks_;  // guarded by mutex_
};

}  // namespace mccl::detail
