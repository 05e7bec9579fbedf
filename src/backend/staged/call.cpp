#include "backend/staged/call.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "backend/staged/ordered_calls.h"
#include "backend/staged/poll_backoff.h"
#include "mccl/error.h"

namespace mccl::staged {
namespace {

/// Maximum time that a failed call waits for its device, which may never finish.
constexpr std::chrono::seconds kLastWait{5};

}  // namespace

StagedCall::StagedCall(std::shared_ptr<OrderedCalls> ordered, const Request& request,
                       const CallOptions& options, int rank, Clock::time_point deadline, bool early)
    : ordered_(std::move(ordered)),
      request_(request),
      kept_counts_(request_),
      options_(options),
      deadline_(deadline),
      rank_(rank) {
  if (!on_device(request_) && !options.fence) return;
  stage_ = std::make_unique<Stage>(request_, rank, options, early);
  is_staged_ = true;
  leads_ = stage_->leads();
}

bool StagedCall::arrived() const {
  const std::lock_guard lock(mutex_);
  return !stage_ || stage_->may_start();
}

std::exception_ptr StagedCall::failure() const {
  const std::lock_guard lock(mutex_);
  return stage_ ? stage_->failure() : nullptr;
}

/// Returns the options for the call on host memory. Their timeout is the remaining time of this
/// call. Clears caller_waits, because the thread that starts the call does not wait for it.
CallOptions StagedCall::options_now() const {
  CallOptions options = options_;
  options.caller_waits = false;
  options.stream = nullptr;
  options.fence = nullptr;
  options.timeout = std::chrono::milliseconds(0);
  if (deadline_ != Clock::time_point::max()) options.timeout = left_until(deadline_);
  return options;
}

void StagedCall::clear_left_out() const {
  const Buffer& left = options_.left_out;
  if (options_.fence && left.data) std::memset(left.data, 0, left.bytes());
}

void StagedCall::set_inner(const Work& inner) {
  {
    const std::lock_guard lock(mutex_);
    phase_ = Phase::started;
    inner_ = inner;
  }
  inner.on_done([self = std::static_pointer_cast<StagedCall>(shared_from_this())](
                    const std::exception_ptr& error) { self->returned(error); });
}

void StagedCall::returned(std::exception_ptr error) {
  bool waits = false;
  {
    const std::lock_guard lock(mutex_);
    if (phase_ >= Phase::returning) return;
    phase_ = Phase::returning;
    error_ = std::move(error);
    if (inner_) set_source(inner_->source());
    stranded_at_ = error_ ? Clock::now() + kLastWait : Clock::time_point::max();
    if (stage_) stage_->finish(error_ != nullptr);
    waits = stage_ && !stage_->ended();
  }
  const auto self = std::static_pointer_cast<StagedCall>(shared_from_this());
  if (!waits) {
    try_finish();
  } else if (!ordered_->look_after(self)) {
    finish_alone();
  }
}

bool StagedCall::try_finish() {
  std::unique_ptr<Stage> stage;
  std::exception_ptr error;
  {
    const std::lock_guard lock(mutex_);
    if (phase_ == Phase::over) return true;
    if (phase_ != Phase::returning) return false;
    if (stage_ && !stage_->ended() && Clock::now() < stranded_at_) return false;
    phase_ = Phase::over;
    stage = std::move(stage_);
    if (!error_ && stage) error_ = stage->failure();
    error = error_;
  }
  stage.reset();
  for (const Work::Callback& callback : finish(error)) callback(error);
  return true;
}

std::string StagedCall::description() const {
  return fmt::format("{} on rank {}{}", name_of(request_.call.collective), rank_,
                     is_staged_ ? " (device memory)" : "");
}

void StagedCall::require_started_batch() const {
  if (!held_back_.load(std::memory_order_acquire)) return;
  throw InvalidArgument(fmt::format(
      "{}: the call starts only when end_coalescing is called; call end_coalescing before you wait "
      "for the call",
      description()));
}

bool StagedCall::wait_on_stream(void* stream) {
  require_started_batch();
  if (!leads_) return false;
  std::exception_ptr error;
  {
    const std::lock_guard lock(mutex_);
    if (stage_) {
      stage_->lead(stream);
      return true;
    }
    error = error_;
  }
  if (error) std::rethrow_exception(error);
  return true;
}

std::optional<Work> StagedCall::inner() const {
  const std::lock_guard lock(mutex_);
  return inner_;
}

void StagedCall::help(Clock::time_point deadline) {
  require_started_batch();
  PollBackoff backoff;
  bool over = false;
  while (!done() && Clock::now() < deadline) {
    if (const std::optional<Work> inner = this->inner(); !inner) {
      ordered_->advance();
    } else if (!over) {
      const bool bounded = deadline != Clock::time_point::max();
      try {
        inner->wait(bounded ? std::optional(left_until(deadline)) : std::nullopt);
      } catch (const Error&) {
        // Either this wait has timed out, or the call has failed and returned() has the error.
      }
      over = inner->done();
      backoff = PollBackoff();
      continue;
    }
    if (!try_finish()) backoff.pause();
  }
}

}  // namespace mccl::staged
