// Ends calls: counts each in the metrics and wakes its waiters.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <string_view>

#include "base/log.h"
#include "engine/calls/operation_list.h"
#include "engine/calls/staging.h"
#include "mccl/metrics.h"

namespace mccl::engine {

/// Ends calls, and keeps those whose callbacks have not run. Used under the engine's progress lock,
/// except where a comment says otherwise.
class Completions {
 public:
  /// One of this many at-once calls is timed. Its times count for all of them.
  static constexpr std::uint32_t kTimedEvery = 16;

  /// `staging` and `log` must outlive this object.
  Completions(std::shared_ptr<Metrics> metrics, Staging& staging, const Log& log);

  /// Ends the call, with an error if `error` is set. No-op if it has ended already. Its callbacks
  /// wait for run().
  void finish(std::shared_ptr<Operation> operation, std::exception_ptr error) noexcept;

  /// Called when a call begins that runs on its caller's thread. Returns the current time, or a
  /// default time_point if the call is not timed.
  Clock::time_point begin_at_once();
  void end_at_once(const Task& task, Clock::time_point begun);

  bool callbacks_wait() const { return !with_callbacks_.empty(); }
  /// Returns the calls that are done and whose callbacks have not run.
  OperationList take_callbacks() { return std::exchange(with_callbacks_, {}); }
  /// Runs the callbacks and releases the calls. Called without any lock.
  void run(OperationList calls) const noexcept;

  /// Sets whether calls are counted; true at first. Called from any thread.
  void count_calls(bool count) { counts_.store(count, std::memory_order_relaxed); }
  bool counts() const { return counts_.load(std::memory_order_relaxed); }

 private:
  void blame_callback(std::string_view thrown) const noexcept;

  const std::shared_ptr<Metrics> metrics_;
  const std::shared_ptr<Tally> tally_;  ///< Counts calls that are not timed.
  Staging& staging_;
  const Log& log_;
  std::atomic<bool> counts_{true};
  std::uint32_t at_once_ = 0;
  OperationList with_callbacks_;
};

}  // namespace mccl::engine
