// A call that goes through the node's window only, on the caller's own thread, without a Work: what
// small calls of a busy loop take, where every lock and every look at the clock would show.
#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "engine/engine.h"
#include "engine/pause.h"
#include "mccl/error.h"

namespace mccl::engine {
namespace {

/// One call in so many is timed, and counts for all of them.
constexpr std::uint32_t kTimedEvery = 16;
/// Looks without a breath between them: it would be as long as what is waited for.
constexpr int kEagerLooks = 128;
/// Looks between two looks at the clock.
constexpr int kLooks = 64;
constexpr int kCrowdedLooks = 8;

}  // namespace

Engine::AtOnce Engine::run_at_once(const std::shared_ptr<GroupState>& group, Task& task,
                                   std::chrono::milliseconds timeout) {
  if (abandoned_ || group->window.nodes().empty()) return {};
  std::unique_lock lock(progress_mutex_, std::try_to_lock);
  if (!lock || !active_.empty() || inbox_waiting_.load(std::memory_order_acquire)) return {};
  if (stopping_ || group->failed() || group->suspicion || group->plans.facts().window_bytes == 0 ||
      task.call.kind == ReduceKind::premul_sum) {
    return {};
  }
  const bool timed = at_once_++ % kTimedEvery == 0;
  Clock::time_point now;
  if (timed) {
    now = Clock::now();
    if (!look_beside_safely(now) || group->failed()) return {};
  }
  // After looking beside, which may forget plans that were not used for a while.
  const Plan& plan = plan_for(*group, task);
  if (!plan.schedule.in_order) return {};
  // A call that another thread submits meanwhile has no order with this one: its callers gave none.
  task.call.sequence = group->sequence.fetch_add(1, std::memory_order_relaxed) + 1;
  group->recorder.started(task.call);
  begin_at_once(*group, task, plan);
  try {
    if (spin_until_finished(*group)) {
      group->executor.end();
      count_at_once(task, timed ? now : Clock::time_point());
      return {.done = true, .begun = nullptr};
    }
  } catch (const std::exception&) {
    // It will be met again by the driver, who knows what to do about it.
  }
  try {
    return {.done = false, .begun = hand_over(group, task, timeout)};
  } catch (const std::exception& error) {
    fail_at_once(*group, task.call, error);
  }
}

/// To the driver, who goes on with the call.
std::shared_ptr<Operation> Engine::hand_over(const std::shared_ptr<GroupState>& group, Task& task,
                                             std::chrono::milliseconds timeout) {
  const auto begun = std::make_shared<Operation>(std::move(task));
  begun->group = group;
  begun->engine = weak_from_this();
  begun->caller_waits = true;
  begun->submitted = begun->started = Clock::now();
  begun->deadline = deadline_after(begun->started, timeout);
  group->executor.moved_to(*begun);
  activate(group);
  group->queue.push_back(begun);
  return begun;
}

void Engine::begin_at_once(GroupState& group, Task& task, const Plan& plan) {
  try {
    group.executor.begin(task, plan);
  } catch (const std::exception& error) {
    fail_at_once(group, task.call, error);
  }
}

/// The other ranks have begun, or will: what goes wrong here they must hear of.
void Engine::fail_at_once(GroupState& group, const Call& call, const std::exception& error) {
  Failure failure = failure_of(error);
  failure.reason = fmt::format("rank {} in {}: {}", group.rank, describe(call), failure.reason);
  fail(group, failure);
  std::rethrow_exception(exception_of(failure.kind, failure.reason));
}

/// For as long as a driver would before it sleeps.
bool Engine::spin_until_finished(GroupState& group) {
  // Where ranks share cores, whoever is waited for may need this one.
  const int looks_between = crowded_ ? kCrowdedLooks : kLooks;
  Clock::time_point until;
  for (int looks = 1;; ++looks) {
    group.executor.advance();
    if (group.executor.finished()) return true;
    if (crowded_) {
      std::this_thread::yield();
    } else if (looks > kEagerLooks) {
      pause_core();
    }
    if (looks % looks_between != 0) continue;
    // Not before: reading the clock takes longer than a neighbour that is on time.
    const Clock::time_point now = Clock::now();
    if (looks == looks_between) until = now + spin_limit_;
    if (now >= until || inbox_waiting_.load(std::memory_order_relaxed)) return false;
    if (looks > kEagerLooks) std::this_thread::yield();
  }
}

void Engine::count_at_once(const Task& task, Clock::time_point begun) {
  if (!counts_calls_.load(std::memory_order_relaxed)) return;
  if (begun == Clock::time_point()) {
    tally_->count(task.traffic.bytes_sent, task.traffic.bytes_received);
    return;
  }
  CallSample sample;
  sample.network_s = task.traffic.network_s;
  sample.reduce_s = task.reduce_s;
  sample.payload_bytes = std::max(task.input.bytes(), task.output.bytes());
  sample.bytes_sent = task.traffic.bytes_sent;
  sample.bytes_received = task.traffic.bytes_received;
  sample.execution_s = seconds_between(begun, Clock::now());
  options_.metrics->record(sample, kTimedEvery);
}

}  // namespace mccl::engine
