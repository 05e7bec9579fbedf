// A call that a device runs without the host, on a queue separate from the caller's stream.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "backend/direct/path.h"
#include "backend/staged/poll_backoff.h"
#include "base/clock.h"
#include "base/work_state.h"
#include "engine/engine.h"

namespace mccl::direct {

/// State of the Work of a call that a device runs without the host. Thread-safe.
class DirectCall final : public detail::WorkState, public staged::Returning {
 public:
  /// `group` is the group that `path` belongs to.
  DirectCall(std::shared_ptr<Path> path, std::weak_ptr<engine::Engine> engine,
             std::shared_ptr<engine::GroupState> group, Clock::time_point submitted,
             Clock::time_point deadline)
      : path_(std::move(path)),
        queue_(*path_->queue()),
        engine_(std::move(engine)),
        group_(std::move(group)),
        submitted_(submitted),
        deadline_(deadline) {}

  /// Sets the call's number in the path's queue, and the call as EnqueuedCalls has recorded it.
  /// Must be called once, before any other function.
  void wait_for(device::Word number, const engine::Call& call) {
    number_ = number;
    call_ = call;
  }

  bool try_finish() override;
  std::string description() const override;
  bool wait_on_stream(void* stream) override;

 protected:
  void help(Clock::time_point deadline) override;

 private:
  std::exception_ptr failure();
  std::exception_ptr failure_of_group() const;

  const std::shared_ptr<Path> path_;
  device::SerialQueue& queue_;
  const std::weak_ptr<engine::Engine> engine_;
  const std::shared_ptr<engine::GroupState> group_;
  const Clock::time_point submitted_;
  device::Word number_{};
  engine::Call call_;
  const Clock::time_point deadline_;
};

}  // namespace mccl::direct
