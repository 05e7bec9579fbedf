// Runs a call on the caller's own thread, without a Work: a collective that needs only the node's
// window or a carrier, or a small message. A program that makes small calls in a loop spends most
// of its time here, so the cost of a lock or of reading the clock is measurable.
#include <algorithm>
#include <limits>
#include <mutex>
#include <thread>

#include "engine/driving/driver.h"
#include "engine/engine.h"
#include "mccl/error.h"

namespace mccl::engine {
namespace {

/// Number of checks for progress that are made without a pause between them. A pause would take as
/// long as waiting for a neighbour that arrives at the same time.
constexpr int kEagerLooks = 128;
/// Number of checks for progress between two readings of the clock: a power of two. kCrowdedLooks
/// applies if ranks share cores.
constexpr int kLooks = 64;
constexpr int kCrowdedLooks = 8;
/// Number of checks after which a small call counts as waiting, and its record gets the time of its
/// end. That is some microseconds after its begin. In a call that waits for less, reading the cycle
/// counter would be noticeable.
constexpr int kWaitingLooks = kEagerLooks + kLooks;
/// Interval between checks of control messages and links while calls complete on their callers'
/// threads. A check takes as long as many such calls. Calls that do not complete on their callers'
/// threads are left to the driver, which checks more often.
constexpr std::chrono::milliseconds kBetweenLooksAtOnce{5};
/// Longest time for which a caller's thread advances its call without a check of control messages
/// and deadlines.
constexpr std::chrono::milliseconds kLongestSpin{1};
/// Longest wait for the progress lock before a send is handed to the progress thread. The sender
/// need not wait for the message, so a longer wait would only delay it.
constexpr std::chrono::microseconds kSendersLockWait{5};

}  // namespace

AtOnce Engine::run_at_once(const std::shared_ptr<GroupState>& group, Task& task,
                           std::chrono::milliseconds timeout, std::shared_ptr<Operation>& begun) {
  if (abandoned_) return AtOnce::no;
  const std::unique_lock lock = lock_for(task.call);
  if (!lock) return AtOnce::no;
  if (task.call.collective == Collective::recv && task.call.peer >= 0)
    begun = group->received_from(GroupRank(task.call.peer));
  const AtOnce result = try_at_once(*group, task);
  if (result != AtOnce::not_yet) return result;
  try {
    begun = std::make_shared<Operation>(std::move(task));
  } catch (const std::exception& error) {
    fail_at_once(*group, task, error);
  }
  begun->group = group;
  begun->driver = weak_from_this();
  begun->caller_waits = is_collective(begun->call);
  begun->deadline = deadline_after(Clock::now(), timeout);
  continue_later(begun);
  return result;
}

AtOnce Engine::run_at_once(const std::shared_ptr<Operation>& message) {
  if (abandoned_) return AtOnce::no;
  const std::unique_lock lock = lock_for(message->call);
  if (!lock) return AtOnce::no;
  try {
    const AtOnce result = try_at_once(*message->group, *message);
    if (result == AtOnce::not_yet) continue_later(message);
    if (result != AtOnce::no) message->held_back.store(false, std::memory_order_release);
    return result;
  } catch (const std::exception&) {
    // The group has failed. The caller then submits the message, which ends with the group's error.
    return AtOnce::no;
  }
}

std::chrono::microseconds Engine::longest_spin() const {
  return std::min<std::chrono::microseconds>(driver_.spin(), kLongestSpin);
}

/// Acquires the progress lock for a call that its caller's thread is to run. Returns without the
/// lock if another thread does not release it soon. The caller then submits the call, and the other
/// thread runs it.
std::unique_lock<std::mutex> Engine::lock_for(const Call& call) {
  return driver_.lock_for_caller(call.collective == Collective::send ? kSendersLockWait
                                                                     : longest_spin());
}

/// Called with the progress lock held. Advances the call for at most the time that a driver spins
/// before it sleeps.
AtOnce Engine::try_at_once(GroupState& group, Task& task) {
  const bool sends = task.call.collective == Collective::send;
  const auto must_wait = [&] { return sends ? inbox_.waiting() : has_calls(); };
  if (driver_.stopping() || must_wait() || !group.may_run_at_once(task)) return AtOnce::no;
  const bool is_small =
      std::max(task.in.bytes(), task.out.bytes()) < Completions::kTimedMessageBytes;
  const bool has_times = !is_small || is_collective(task.call);
  const Clock::time_point now = Completions::begin_at_once(
      is_collective(task.call) ? group.sequence() : completions_.ended_at_once());
  task.traffic.timed = now != Clock::time_point();
  Completions::Cycles cycles;
  if (has_times)
    cycles.begun = is_small ? call_clock_.sparse_count(group.sequence()) : cycle_count();
  const bool is_due =
      task.traffic.timed && now >= next_look_ - between_looks_ + kBetweenLooksAtOnce;
  if (is_due && (!look_beside_safely(now) || must_wait() || !group.may_run_at_once(task)))
    return AtOnce::no;
  AtOnce result = AtOnce::no;
  int looks = 0;
  try {
    // begin_at_once() looks up a plan. It must follow look_beside_safely(), which may discard plans
    // that have not been used for a while.
    result = group.begin_at_once(task);
  } catch (...) {
    driver_.wake();
    throw;
  }
  try {
    if (result == AtOnce::not_yet && !sends) {
      spin_until(group.is_carried(), [&] {
        // The call may have no start time yet. It has waited so long that reading the clock delays
        // it little.
        if (++looks == kWaitingLooks && has_times && cycles.begun == 0)
          cycles.begun = cycle_count();
        result = group.advance_at_once(task);
        return result != AtOnce::not_yet;
      });
    }
  } catch (const PeerError&) {
    // The call fails again in the driver, which waits a moment for the peer to announce the reason.
  } catch (const std::exception& error) {
    if (!group.is_carried()) fail_at_once(group, task, error);
  }
  // A receive whose message has not arrived has had no effect, so it can still be submitted.
  if (result == AtOnce::not_yet && task.call.collective == Collective::recv) result = AtOnce::no;
  if (result == AtOnce::whole) {
    // The clock is not read again for a small call that did not wait, because reading it would take
    // as long as the call.
    const bool is_short =
        is_small && looks <= kWaitingLooks && !group.is_carried() && !driver_.shares_cores();
    cycles.ended = cycles.begun == 0 || is_short ? cycles.begun : cycle_count();
    completions_.end_at_once(task, now, cycles);
  }
  if (sends && group.sets_deadlines(task) && sleeps_too_long()) driver_.wake();
  task.traffic.timed = true;
  return result;
}

void Engine::end_at_once(std::span<const std::shared_ptr<Operation>> messages) noexcept {
  OperationList ended;
  for (const std::shared_ptr<Operation>& message : messages) {
    if (message->call.collective == Collective::recv)
      message->received_from(GroupRank(message->call.peer));
    message->callbacks = message->finish(nullptr);
    ended.push_back(message);
  }
  completions_.run(std::move(ended));
}

void Engine::record_enqueued(GroupState& group, const Request& request,
                             std::string_view algorithm) noexcept {
  if (abandoned_) return;
  if (const std::unique_lock lock = driver_.lock_for_caller(driver_.spin()))
    return group.record_enqueued(request, algorithm);
  if (const WayGuard way(driver_, Clock::now() + kLongestSpin); way)
    group.record_enqueued(request, algorithm);
}

/// Called with the progress lock held. Lets the driver continue a call that has begun. If memory
/// has run out, fails the group and throws.
void Engine::continue_later(const std::shared_ptr<Operation>& call) {
  call->submitted = call->started = Clock::now();
  try {
    groups_.go_on_with(call);
  } catch (const std::exception& error) {
    fail_at_once(*call->group, *call, error);
  }
  if (!is_collective(call->call)) driver_.wake();
}

/// Called with the progress lock held. Fails the group and throws. The progress thread runs the
/// callbacks of the calls that end.
void Engine::fail_at_once(GroupState& group, const Task& task, const std::exception& error) {
  driver_.wake();
  group.fail_at_once(task, error);
}

/// Calls `advance` until it returns true. Returns false if the inbox is not empty, or after the
/// time for which a driver spins before it sleeps, but at most kLongestSpin. `carried` is true if a
/// carrier runs the call.
template <typename Advance>
bool Engine::spin_until(bool carried, Advance advance) {
  const bool crowded = driver_.shares_cores();
  // Carrier::advance() tests the call several times, which takes long enough that no pause is
  // needed.
  const int eager_looks = carried ? std::numeric_limits<int>::max() : kEagerLooks;
  // If ranks share cores, the clock is read more often, because a rank that the call waits for may
  // need this core.
  const int looks_between = carried ? 1 : crowded ? kCrowdedLooks : kLooks;
  Clock::time_point until;
  for (int looks = 1;; ++looks) {
    if (advance()) return true;
    if (crowded) {
      std::this_thread::yield();
    } else if (looks > eager_looks) {
      pause_core();
    }
    if ((looks & (looks_between - 1)) != 0) continue;
    // The clock is not read earlier, because reading it takes longer than waiting for a neighbour
    // that arrives at the same time.
    const Clock::time_point now = Clock::now();
    if (looks == looks_between) until = now + longest_spin();
    if (now >= until || inbox_.waiting()) return false;
    if (looks > eager_looks) std::this_thread::yield();
  }
}

/// Calls look_beside() on a caller's thread. Returns false if an exception occurred; all groups
/// have then failed. If the messages read here require work, wakes the progress thread, because its
/// poll() does not report bytes that this thread has already read, and may last too long.
bool Engine::look_beside_safely(Clock::time_point now) {
  const bool was_idle = groups_.idle();
  bool safe = true;
  try {
    look_beside(now);
  } catch (const std::exception& error) {
    fail_all(error);
    safe = false;
  }
  if ((was_idle && !groups_.idle()) || completions_.callbacks_wait() || sleeps_too_long())
    driver_.wake();
  return safe;
}

}  // namespace mccl::engine
