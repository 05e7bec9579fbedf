#include "backend/staged/ordered_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "backend/native/group.h"
#include "backend/staged/poll_backoff.h"
#include "base/thread.h"
#include "device/registry.h"
#include "mccl/error.h"

namespace mccl::staged {
namespace {

/// After this time without a call, a queue releases the pinned memory that was not used during this
/// time.
constexpr std::chrono::seconds kIdle{30};

/// State of the Work of a call that could not start. The Work has failed from the beginning.
class FailedState final : public detail::WorkState {
 public:
  explicit FailedState(std::exception_ptr error) { static_cast<void>(finish(std::move(error))); }
  std::string description() const override { return "a call that could not start"; }

 protected:
  void help(Clock::time_point) override {}
};

bool all_arrived(const std::vector<std::shared_ptr<StagedCall>>& batch) {
  return std::ranges::all_of(batch, [](const auto& call) { return call->arrived(); });
}

}  // namespace

OrderedCalls::~OrderedCalls() {
  if (watcher_.joinable()) watcher_.detach();
}

OrderedCalls::Batch* OrderedCalls::open_batch() {
  const auto own = open_.find(std::this_thread::get_id());
  if (own != open_.end()) return &own->second;
  if (!group_->batch_is_open()) return nullptr;
  Batch& batch = open_[std::this_thread::get_id()];
  ++attention_;
  return &batch;
}

Work OrderedCalls::enqueue(const Request& request, const CallOptions& options) {
  native::NativeGroup* const group = begin_watching();
  // Constructed outside the lock, because the constructor may allocate pinned memory, which may
  // wait for the device.
  const auto call =
      std::make_shared<StagedCall>(shared_from_this(), request, options, group->rank(),
                                   engine::deadline_after(Clock::now(), group->timeout_of(options)),
                                   group->begins_early(request));
  {
    const std::lock_guard lock(mutex_);
    if (Batch* const batch = open_batch()) {
      call->hold_back(true);
      batch->push_back(call);
      return Work(call);
    }
    waiting_.push_back({call});
    ++attention_;
  }
  changed_.notify_one();
  return Work(call);
}

Work OrderedCalls::end_batch(Work others) {
  std::vector<Work> works{std::move(others)};
  {
    const std::lock_guard lock(mutex_);
    const auto own = open_.find(std::this_thread::get_id());
    if (own == open_.end()) return works.front();
    for (const CallPtr& call : own->second) works.emplace_back(call);
    waiting_.push_back(std::move(own->second));  // attention_ already counts this batch
    open_.erase(own);
    for (const CallPtr& call : waiting_.back()) call->hold_back(false);
  }
  changed_.notify_one();
  return Work::all_of(std::move(works));
}

/// Fails the whole group, because the other ranks wait for a call that this rank cannot make.
void OrderedCalls::fail_group(const StagedCall& call, const std::exception_ptr& error) {
  std::string what;
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& said) {
    what = said.what();
  }
  const std::string reason =
      fmt::format("{} failed before it started: {}", call.description(), what);
  group_->abort(reason);
  throw Error(reason);
}

void OrderedCalls::start(const Batch& batch, Starts& started) {
  const bool together = batch.size() > 1;
  std::exception_ptr failure;
  if (together) group_->begin_batch();
  for (const CallPtr& call : batch) {
    Work work;
    try {
      if (const std::exception_ptr failed = call->failure()) fail_group(*call, failed);
      if (call->arrived()) call->clear_left_out();
      work = group_->start(call->request(), call->options_now());
    } catch (...) {
      work = Work(std::make_shared<FailedState>(std::current_exception()));
    }
    started.emplace_back(call, std::move(work));
  }
  if (together) group_->end_batch();
}

/// Starts the calls that are ready, in order. If the deadline of the next call passes before its
/// input has arrived, removes that call from the queue and returns it. In a failed group, calls
/// start without their input and report the failure. No-op on a thread with an open batch, because
/// the group would hold back calls that are started on this thread until the batch ends.
OrderedCalls::CallPtr OrderedCalls::start_ready(Starts& started) {
  const std::lock_guard lock(mutex_);
  if (group_ && group_->batch_is_open()) return nullptr;
  while (group_ && !waiting_.empty()) {
    Batch& first = waiting_.front();
    if (!all_arrived(first) && !group_->has_failed()) {
      const Clock::time_point now = Clock::now();
      const auto late =
          std::ranges::find_if(first, [now](const CallPtr& call) { return call->expired(now); });
      if (late == first.end()) return nullptr;
      CallPtr call = *late;
      first.erase(late);
      if (first.empty()) {
        waiting_.pop_front();
        --attention_;
      }
      return call;
    }
    start(first, started);
    waiting_.pop_front();
    --attention_;
  }
  return nullptr;
}

void OrderedCalls::advance() {
  Starts started;
  const CallPtr late = start_ready(started);
  if (!started.empty()) {
    const std::lock_guard lock(mutex_);
    for (const auto& [call, work] : started) running_.push_back(work);
  }
  for (const auto& [call, work] : started) call->set_inner(work);
  if (late) give_up(late);
}

void OrderedCalls::give_up(const CallPtr& call) {
  const std::string reason = fmt::format(
      "{} timed out before its input was copied from the device: earlier work in the stream is not "
      "finished",
      call->description());
  {
    const std::lock_guard lock(mutex_);
    if (group_) group_->abort(reason);
  }
  call->returned(std::make_exception_ptr(TimeoutError(reason)));
}

bool OrderedCalls::look_after(std::shared_ptr<Returning> call) {
  {
    const std::lock_guard lock(mutex_);
    if (!group_) return false;
    returning_.push_back(std::move(call));
  }
  changed_.notify_one();
  return true;
}

bool OrderedCalls::finish_returning() {
  std::vector<std::shared_ptr<Returning>> looked;
  {
    const std::lock_guard lock(mutex_);
    looked = returning_;
  }
  std::vector<std::shared_ptr<Returning>> ended;
  for (const auto& call : looked) {
    if (call->try_finish()) ended.push_back(call);
  }
  const std::lock_guard lock(mutex_);
  std::erase_if(returning_, [&ended](const auto& call) {
    return std::ranges::find(ended, call) != ended.end();
  });
  return !ended.empty();
}

/// Waits up to 1 ms for a running call; meanwhile this thread drives the engine. Callers with GPU
/// memory seldom wait on the host. Without this thread, only the engine's own thread would drive
/// the engine, and that thread polls for a shorter time before it sleeps.
void OrderedCalls::help_running() {
  constexpr std::chrono::milliseconds kSlice{1};
  Work work;
  {
    const std::lock_guard lock(mutex_);
    while (!running_.empty() && running_.front().done()) running_.pop_front();
    if (running_.empty() || !returning_.empty()) return;
    work = running_.front();
  }
  try {
    work.wait(kSlice);
  } catch (const Error&) {
    // Either the wait has timed out, or the call has failed and reports the error itself.
  }
}

native::NativeGroup* OrderedCalls::begin_watching() {
  const std::lock_guard lock(mutex_);
  if (group_ && !watcher_.joinable())
    watcher_ = start_thread("mccl-device", [self = shared_from_this()] { self->watch(); });
  return group_;
}

void OrderedCalls::watch() {
  PollBackoff backoff;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      const auto has_work = [this] {
        return !waiting_.empty() || !returning_.empty() || !running_.empty();
      };
      if (!group_) return;
      if (!has_work()) {
        const auto is_called = [&] { return has_work() || !group_; };
        if (!changed_.wait_for(lock, kIdle, is_called)) {
          lock.unlock();
          device::release_unused(kIdle);
          lock.lock();
          changed_.wait(lock, is_called);
        }
        backoff = PollBackoff();
      } else if (running_.empty() && backoff.naps()) {
        changed_.wait_for(lock, backoff.nap());
      }
      if (!group_) return;
    }
    const int before = attention_.load();
    advance();
    help_running();
    const bool progress = finish_returning() || attention_.load() != before;
    if (progress) backoff = PollBackoff();
    if (!backoff.naps()) std::this_thread::yield();
  }
}

void OrderedCalls::close() {
  std::thread watcher;
  std::vector<std::shared_ptr<Returning>> returning;
  std::deque<Batch> waiting;
  std::string reason;
  {
    const std::lock_guard lock(mutex_);
    reason = fmt::format("rank {} has released the group", group_->rank());
    group_ = nullptr;
    watcher = std::move(watcher_);
    returning = std::exchange(returning_, {});
    waiting = std::exchange(waiting_, {});
    for (auto& [thread, batch] : open_) waiting.push_back(std::move(batch));
    open_.clear();
  }
  changed_.notify_all();
  if (watcher.joinable()) {
    if (watcher.get_id() == std::this_thread::get_id()) {
      watcher.detach();
    } else {
      watcher.join();
    }
  }
  for (const auto& call : returning) call->finish_alone();
  for (const Batch& batch : waiting) {
    for (const CallPtr& call : batch) {
      call->hold_back(false);
      call->returned(std::make_exception_ptr(
          AbortedError(fmt::format("{}: {}", call->description(), reason))));
    }
  }
}

}  // namespace mccl::staged
