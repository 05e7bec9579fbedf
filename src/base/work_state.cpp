#include "base/work_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <utility>

#include "mccl/error.h"

namespace mccl {
namespace detail {
namespace {

/// Thrown if there is no memory for a more specific message. Copying it needs no memory.
const TimeoutError kNotDone(
    "the call is not done yet; it continues until its own timeout (this rank has no memory left "
    "to name the call)");

}  // namespace

void WorkState::wait(std::optional<std::chrono::milliseconds> timeout) {
  const bool bounded = timeout && timeout->count() > 0;
  const Clock::time_point deadline = bounded ? Clock::now() + *timeout : Clock::time_point::max();
  wait_until(deadline);
  if (!done()) throw_not_done_after(*timeout);
  if (std::exception_ptr failure = error()) std::rethrow_exception(failure);
}

/// Never throws std::bad_alloc, which the caller would take for an error of the call itself.
void WorkState::throw_not_done_after(std::chrono::milliseconds timeout) const {
  std::optional<TimeoutError> error;
  try {
    error.emplace(
        fmt::format("{} is not done after {} ms; it continues until its own timeout: wait "
                    "again, or abort the group",
                    description(), timeout.count()));
  } catch (const std::bad_alloc&) {
    error = kNotDone;
  }
  throw *error;
}

void WorkState::on_done(Work::Callback callback) {
  {
    std::lock_guard lock(mutex_);
    if (!done_.load(std::memory_order_relaxed)) {
      callbacks_.push_back(std::move(callback));
      return;
    }
  }
  callback(error());
}

std::vector<Work::Callback> WorkState::finish(std::exception_ptr error) {
  std::lock_guard lock(mutex_);
  if (done_.load(std::memory_order_relaxed)) return {};
  error_ = error;
  done_.store(true, std::memory_order_release);
  finished_.notify_all();
  return std::exchange(callbacks_, {});
}

void WorkState::sleep_until_done(Clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  const auto finished = [this] { return done_.load(std::memory_order_relaxed); };
  if (deadline == Clock::time_point::max()) {
    finished_.wait(lock, finished);
  } else {
    finished_.wait_until(lock, deadline, finished);
  }
}

namespace {

/// The state of a Work that is done when all of its parts are done.
class CombinedState final : public WorkState {
 public:
  using Parts = std::vector<std::shared_ptr<WorkState>>;

  explicit CombinedState(Parts parts) : parts_(std::move(parts)), left_(parts_.size()) {}

  void watch() {
    const auto self = std::static_pointer_cast<CombinedState>(shared_from_this());
    for (const std::shared_ptr<WorkState>& part : parts_) {
      part->on_done([self](std::exception_ptr error) { self->part_done(error); });
    }
  }

  bool wait_on_stream(void* stream) override {
    for (const std::shared_ptr<WorkState>& part : parts_) {
      if (!part->wait_on_stream(stream)) part->wait({});
    }
    return true;
  }

  std::string description() const override {
    return fmt::format("a coalesced group of {} calls", parts_.size());
  }

 protected:
  void help(Clock::time_point deadline) override {
    // Visits all parts even after the deadline, so that each learns that its caller has stopped
    // waiting.
    for (const std::shared_ptr<WorkState>& part : parts_) part->wait_until(deadline);
    sleep_until_done(deadline);
  }

 private:
  void part_done(const std::exception_ptr& error) {
    std::exception_ptr first;
    {
      const std::lock_guard lock(left_mutex_);
      if (!first_error_) first_error_ = error;
      if (--left_ > 0) return;
      first = first_error_;
    }
    for (const Work::Callback& callback : finish(first)) callback(first);
  }

  const Parts parts_;
  std::mutex left_mutex_;
  std::size_t left_;                // number of parts in flight; guarded by left_mutex_
  std::exception_ptr first_error_;  // guarded by left_mutex_
};

}  // namespace
}  // namespace detail

Work::Work() = default;
Work::Work(std::shared_ptr<detail::WorkState> state) : state_(std::move(state)) {}

void Work::wait(std::optional<std::chrono::milliseconds> timeout) const {
  if (state_) state_->wait(timeout);
}

void Work::wait_in_slices(std::optional<std::chrono::milliseconds> timeout,
                          std::chrono::milliseconds slice,
                          const std::function<void()>& between) const {
  if (!state_) return;
  const bool bounded = timeout && timeout->count() > 0;
  const Clock::time_point end = bounded ? Clock::now() + *timeout : Clock::time_point::max();
  for (;; between()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
    if (bounded && left.count() <= 0 && !done()) state_->throw_not_done_after(*timeout);
    try {
      return state_->wait(std::clamp(left, std::chrono::milliseconds(1), slice));
    } catch (const TimeoutError&) {
      // Either the slice has elapsed, or the call has failed with TimeoutError. If the call has
      // ended, wait() returns or throws the call's error.
      if (done()) return state_->wait({});
    }
  }
}

void Work::wait_on_stream(void* stream) const {
  if (state_ && !state_->wait_on_stream(stream)) state_->wait({});
}

bool Work::done() const { return !state_ || state_->done(); }

std::exception_ptr Work::error() const { return state_ ? state_->error() : nullptr; }

int Work::source() const { return state_ ? state_->source() : -1; }

void Work::on_done(Callback callback) const {
  if (state_) {
    state_->on_done(std::move(callback));
  } else {
    callback(nullptr);
  }
}

Work Work::all_of(std::vector<Work> parts) {
  detail::CombinedState::Parts states;
  for (Work& part : parts) {
    if (part.state_) states.push_back(std::move(part.state_));
  }
  if (states.empty()) return {};
  const auto state = std::make_shared<detail::CombinedState>(std::move(states));
  state->watch();
  return Work(state);
}

}  // namespace mccl
