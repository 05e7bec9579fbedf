// A call that waits for a device, a fence or an earlier call, in a group's queue of ordered calls.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "backend/request.h"
#include "backend/staged/poll_backoff.h"
#include "backend/staged/stage.h"
#include "base/clock.h"
#include "base/work_state.h"
#include "mccl/group.h"

namespace mccl::staged {

class OrderedCalls;

/// Thread-safe. A call passes through these phases: waiting (for its fence, its input or an earlier
/// call), started (the call on host memory runs), returning (the device copies the output) and
/// over.
class StagedCall final : public detail::WorkState, public Returning {
 public:
  /// If the input is on a device and the call has no fence, starts to copy the input to host
  /// memory. `early`: true if the call may start before all of its input has arrived (see
  /// engine::Conveyor). Throws the errors of Stage's constructor.
  StagedCall(std::shared_ptr<OrderedCalls> ordered, const Request& request,
             const CallOptions& options, int rank, Clock::time_point deadline, bool early);

  /// True if the call on host memory may start.
  bool arrived() const;
  /// The error of the fence or of a copy; null if there is none. A call with an error must fail
  /// instead of starting.
  std::exception_ptr failure() const;
  bool expired(Clock::time_point now) const { return now >= deadline_; }
  /// Marks the call as part of an open batch. While the batch is open, waiting for the call throws.
  void hold_back(bool held) { held_back_.store(held, std::memory_order_release); }

  /// The request of the call on host memory.
  const Request& request() const { return request_; }
  CallOptions options_now() const;
  /// Fills left_out with zeros if the call has a fence, which must have passed; see
  /// CallOptions::left_out.
  void clear_left_out() const;

  void set_inner(const Work& inner);
  /// Must be called when the call on host memory has ended.
  void returned(std::exception_ptr error);
  bool try_finish() override;

  std::string description() const override;
  bool wait_on_stream(void* stream) override;

 protected:
  void help(Clock::time_point deadline) override;

 private:
  enum class Phase { waiting, started, returning, over };

  void require_started_batch() const;
  std::optional<Work> inner() const;

  const std::shared_ptr<OrderedCalls> ordered_;
  Request request_;
  const engine::KeptCounts kept_counts_;
  const CallOptions options_;
  const Clock::time_point deadline_;
  const int rank_;
  bool is_staged_ = false;
  bool leads_ = false;
  std::atomic<bool> held_back_{false};
  mutable std::mutex mutex_;
  Phase phase_ = Phase::waiting;     // guarded by mutex_
  std::unique_ptr<Stage> stage_;     // guarded by mutex_
  std::optional<Work> inner_;        // guarded by mutex_
  std::exception_ptr error_;         // guarded by mutex_
  Clock::time_point stranded_at_{};  // guarded by mutex_
};

}  // namespace mccl::staged
