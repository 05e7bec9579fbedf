// The ends of calls: each is counted in the metrics, and whoever waits for it is told.
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

/// Used under the engine's progress lock, but for what says otherwise.
class Completions {
 public:
  /// One call in so many of those that are run at once is timed, and counts for all of them.
  static constexpr std::uint32_t kTimedEvery = 16;

  /// Both outlive it.
  Completions(std::shared_ptr<Metrics> metrics, Staging& staging, const Log& log);

  /// Ends the call, with an error or without; its callbacks wait for run(). The first time counts.
  void finish(std::shared_ptr<Operation> operation, std::exception_ptr error) noexcept;

  /// Of a call that is run at once: when it begins, or nothing where it is not timed.
  Clock::time_point begin_at_once();
  void end_at_once(const Task& task, Clock::time_point begun);

  bool callbacks_wait() const { return !with_callbacks_.empty(); }
  /// The calls that are done and whose callbacks have not run.
  OperationList take_callbacks() { return std::exchange(with_callbacks_, {}); }
  /// Runs their callbacks and lets go of them; called without any lock.
  void run(OperationList calls) const noexcept;

  /// Whether calls are counted; they are from the beginning. From any thread.
  void count_calls(bool count) { counts_.store(count, std::memory_order_relaxed); }
  bool counts() const { return counts_.load(std::memory_order_relaxed); }

 private:
  void blame_callback(std::string_view thrown) const noexcept;

  const std::shared_ptr<Metrics> metrics_;
  const std::shared_ptr<Tally> tally_;  ///< Of calls that are not timed.
  Staging& staging_;
  const Log& log_;
  std::atomic<bool> counts_{true};
  std::uint32_t at_once_ = 0;
  OperationList with_callbacks_;
};

}  // namespace mccl::engine
