// Ends calls: counts each call in the metrics and the flight recorder, and wakes the threads that
// wait for it. Also counts staging memory.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string_view>
#include <utility>

#include "base/call_clock.h"
#include "base/flight_recorder.h"
#include "base/log.h"
#include "engine/calls/operation.h"
#include "mccl/compression.h"
#include "mccl/metrics.h"
#include "node/arena.h"

namespace mccl::engine {

/// Adds up the staging memory of all groups and of the arena, and reports changes to the metrics.
/// Used under the engine's progress lock.
class Staging {
 public:
  explicit Staging(std::shared_ptr<Metrics> metrics) : metrics_(std::move(metrics)) {}

  /// Sets the arena, whose used bytes count as staging memory: it holds the memory that this rank
  /// shares with other ranks of its node. Called once.
  void watch(std::shared_ptr<const node::Arena> arena) { arena_ = std::move(arena); }

  /// Reports that the size of a group's memory outside the arena has changed from `before` to `now`
  /// bytes.
  void change(std::int64_t before, std::int64_t now) {
    private_bytes_ += now - before;
    changed_ = true;
  }
  /// Reports that the arena's usage may have changed.
  void touch() { changed_ = true; }
  /// Updates the metrics if something changed.
  void report() {
    if (closed_ || !std::exchange(changed_, false)) return;
    record(private_bytes_ + static_cast<std::int64_t>(arena_ ? arena_->taken() : 0));
  }
  /// Reports that all memory has been released. Later reports are no-ops.
  void close() {
    closed_ = true;
    record(0);
  }

 private:
  void record(std::int64_t bytes) {
    metrics_->record_staging(bytes - std::exchange(recorded_, bytes));
  }

  const std::shared_ptr<Metrics> metrics_;
  std::shared_ptr<const node::Arena> arena_;  ///< Null if no memory is shared.
  std::int64_t private_bytes_ = 0;
  std::int64_t recorded_ = 0;
  bool changed_ = false;
  bool closed_ = false;
};

/// Counts the calls that have ended, including failed calls.
struct EndedCalls {
  /// Number of algorithms that are counted separately. A call whose algorithm has a higher index is
  /// counted at index 0, like a call without an algorithm.
  static constexpr std::size_t kMostAlgorithms = 20;

  /// Indexed by collective, and by FlightEntry::algorithm.
  std::array<std::array<std::uint64_t, kMostAlgorithms>, kCollectiveCount> by_algorithm = {};
  std::array<std::uint64_t, kCodecCount> by_codec = {};

  void add(const Task& task) {
    const std::size_t algorithm = task.flight.algorithm;
    ++by_algorithm[static_cast<std::size_t>(task.call.collective)]
                  [algorithm < kMostAlgorithms ? algorithm : 0];
    ++by_codec[static_cast<std::size_t>(task.call.coding.codec)];
  }
};

/// Ends calls, and keeps those whose callbacks have not run. Used under the engine's progress lock,
/// except where a comment says otherwise.
class Completions {
 public:
  /// The metrics time one in kTimedEvery of the calls that run on their caller's thread, and count
  /// its times kTimedEvery times to account for the calls that are not timed.
  static constexpr std::uint32_t kTimedEvery = CallClock::kTimedEvery;

  /// Minimum size, in bytes, of a message that runs on its caller's thread and whose flight record
  /// contains times.
  static constexpr std::size_t kTimedMessageBytes = 4096;

  /// `recorder`, `staging` and `log` must outlive this object.
  Completions(std::shared_ptr<Metrics> metrics, FlightRecorder& recorder, Staging& staging,
              const Log& log);

  FlightRecorder& recorder() const { return recorder_; }
  /// Writes the state of a pending call to the flight recorder.
  void note(Operation& operation, FlightEntry::State state) noexcept;

  /// Ends the call, with an error if `error` is set. No-op if the call has ended already. run()
  /// later runs the call's callbacks.
  void finish(std::shared_ptr<Operation> operation, std::exception_ptr error) noexcept;

  /// Called when a call begins on its caller's thread. For a collective, `number` is the number of
  /// earlier collectives of its group, so that the ranks of a group time the same collectives. For
  /// a message, `number` is ended_at_once(). Returns the current time, or a default time_point if
  /// the metrics do not time the call.
  static Clock::time_point begin_at_once(std::uint64_t number) {
    return number % kTimedEvery == 0 ? Clock::now() : Clock::time_point();
  }
  /// Number of calls that have ended on their caller's thread.
  std::uint32_t ended_at_once() const { return at_once_; }
  /// Values of cycle_count() when a call began and ended; both 0 if the call's record has no times.
  struct Cycles {
    std::int64_t begun = 0;
    std::int64_t ended = 0;
  };
  void end_at_once(const Task& task, Clock::time_point begun, Cycles cycles);
  /// Records the failure of a call that ran on its caller's thread. The call's flight record
  /// contains only the time of the failure.
  void fail_at_once(const Task& task) noexcept;

  bool callbacks_wait() const { return !with_callbacks_.empty(); }
  /// Removes and returns the ended calls whose callbacks have not run.
  OperationList take_callbacks() { return std::exchange(with_callbacks_, {}); }
  /// Runs the callbacks and releases the calls. Called without any lock.
  void run(OperationList calls) const noexcept;

  /// Sets whether calls are counted; true at first. Called from any thread.
  void count_calls(bool count) { counts_.store(count, std::memory_order_relaxed); }
  const EndedCalls& ended_calls() const { return ended_calls_; }
  bool counts() const { return counts_.load(std::memory_order_relaxed); }

 private:
  void blame_callback(std::string_view thrown) const noexcept;

  const std::shared_ptr<Metrics> metrics_;
  const std::shared_ptr<Tally> tally_;  ///< Counts the calls that end_at_once() does not time.
  FlightRecorder& recorder_;
  Staging& staging_;
  const Log& log_;
  std::atomic<bool> counts_{true};
  std::uint32_t at_once_ = 0;
  EndedCalls ended_calls_;
  OperationList with_callbacks_;
};

}  // namespace mccl::engine
