// Runs a call on the caller's own thread, without a Work: a collective that needs only the node's
// window or a carrier, or a small message. Small calls in a busy loop take this path, where the
// cost of a lock or of a clock reading is measurable.
#include <limits>
#include <thread>

#include "engine/driving/pause.h"
#include "engine/engine.h"
#include "mccl/error.h"

namespace mccl::engine {
namespace {

/// Checks without a pause between them. A pause would take as long as the neighbour's arrival.
constexpr int kEagerLooks = 128;
/// Checks between two readings of the clock.
constexpr int kLooks = 64;
constexpr int kCrowdedLooks = 8;
/// Between looks beside the data while a carrier's calls end at once: one takes as long as many of
/// them, and a call that does not end is the driver's, which looks more often.
constexpr std::chrono::milliseconds kBesideCarrier{5};

}  // namespace

Engine::AtOnce Engine::run_at_once(const std::shared_ptr<GroupState>& group, Task& task,
                                   std::chrono::milliseconds timeout) {
  if (abandoned_) return {};
  std::unique_lock lock(driver_.mutex(), std::try_to_lock);
  if (lock && !is_collective(task.call)) return transfer_at_once(group, task, timeout);
  if (!lock || has_calls() || driver_.stopping() || !group->may_run_at_once(task)) return {};
  const Clock::time_point now = completions_.begin_at_once();
  const bool is_due = now != Clock::time_point() &&
                      (!group->is_carried() || now >= next_look_ - between_looks_ + kBesideCarrier);
  if (is_due && (!look_beside_safely(now) || group->failed())) return {};
  // Must follow look_beside_safely(), which may clear plans that have not been used for a while.
  if (!group->begin_at_once(task)) return {};
  try {
    if (spin_until(group->is_carried(), [&] { return group->advance_at_once(); })) {
      completions_.end_at_once(task, now);
      return {.done = true, .begun = nullptr};
    }
  } catch (const PeerError&) {
    // The driver meets this error again, and waits a moment for the peer's own explanation.
  } catch (const std::exception& error) {
    if (!group->is_carried()) group->fail_at_once(task.call, error);
  }
  try {
    return {.done = false, .begun = hand_over(group, task, timeout)};
  } catch (const std::exception& error) {
    group->fail_at_once(task.call, error);
  }
}

/// Called with the progress lock held.
Engine::AtOnce Engine::transfer_at_once(const std::shared_ptr<GroupState>& group, Task& message,
                                        std::chrono::milliseconds timeout) {
  AtOnce ended{.done = true, .begun = nullptr};
  if (message.call.collective == Collective::recv) {
    if (message.call.peer < 0) return {};
    ended.begun = group->received_from(GroupRank(message.call.peer));
  }
  const Messages::AtOnce result = try_to_transfer(*group, message);
  if (result == Messages::AtOnce::whole) return ended;
  if (result == Messages::AtOnce::no) return {};
  try {
    return {.done = false, .begun = hand_over(group, message, timeout)};
  } catch (const std::exception& error) {
    group->fail_at_once(message.call, error);
  }
}

bool Engine::run_at_once(const std::shared_ptr<Operation>& message) {
  if (abandoned_) return false;
  std::unique_lock lock(driver_.mutex(), std::try_to_lock);
  const Messages::AtOnce result =
      lock ? try_to_transfer(*message->group, *message) : Messages::AtOnce::no;
  if (result == Messages::AtOnce::no) return false;
  message->held_back.store(false, std::memory_order_release);
  if (result == Messages::AtOnce::not_yet) {
    message->submitted = message->started = Clock::now();
    groups_.go_on_with(message);
    driver_.wake();
    return true;
  }
  lock.unlock();
  if (message->call.collective == Collective::recv)
    message->received_from(GroupRank(message->call.peer));
  for (const Work::Callback& callback : message->finish(nullptr)) callback(nullptr);
  return true;
}

/// Called with the progress lock held. A receive may wait for its message as long as a driver looks
/// for one before it sleeps.
Messages::AtOnce Engine::try_to_transfer(GroupState& group, Task& message) {
  using enum Messages::AtOnce;
  const bool sends = message.call.collective == Collective::send;
  if (driver_.stopping() || (sends ? inbox_.waiting() : has_calls())) return no;
  const Clock::time_point now = completions_.begin_at_once();
  message.traffic.timed = now != Clock::time_point();
  if (message.traffic.timed && !look_beside_safely(now)) return no;
  Messages::AtOnce result = no;
  try {
    const auto advance = [&] {
      result = group.transfer_at_once(message);
      return result != not_yet;
    };
    if (group.may_transfer_at_once(message)) sends ? advance() : spin_until(false, advance);
    if (result == not_yet && !sends) result = no;
  } catch (const PeerError&) {
    // The driver meets this error again, and waits a moment for the peer's own explanation.
    result = no;
  } catch (const std::exception& error) {
    group.fail_at_once(message.call, error);
  }
  if (result == whole) completions_.end_at_once(message, now);
  message.traffic.timed = true;
  return result;
}

/// Hands the started call over to the driver, which continues it.
std::shared_ptr<Operation> Engine::hand_over(const std::shared_ptr<GroupState>& group, Task& task,
                                             std::chrono::milliseconds timeout) {
  auto begun = std::make_shared<Operation>(std::move(task));
  begun->group = group;
  begun->driver = weak_from_this();
  begun->caller_waits = is_collective(begun->call);
  begun->submitted = begun->started = Clock::now();
  begun->deadline = deadline_after(begun->started, timeout);
  groups_.go_on_with(begun);
  if (!begun->caller_waits) driver_.wake();
  return begun;
}

/// Spins until `advance` returns true, for as long as a driver does before it sleeps. Returns false
/// if it has not returned true by then, or if the inbox is not empty. `carried`: a carrier runs the
/// call.
template <typename Advance>
bool Engine::spin_until(bool carried, Advance advance) {
  const bool crowded = driver_.shares_cores();
  // A carrier tests its call several times, which takes long enough that no pause is needed.
  const int eager_looks = carried ? std::numeric_limits<int>::max() : kEagerLooks;
  // Where ranks share cores, a rank that this call waits for may need this core.
  const int looks_between = carried ? 1 : crowded ? kCrowdedLooks : kLooks;
  Clock::time_point until;
  for (int looks = 1;; ++looks) {
    if (advance()) return true;
    if (crowded) {
      std::this_thread::yield();
    } else if (looks > eager_looks) {
      pause_core();
    }
    if (looks % looks_between != 0) continue;
    // Not read earlier: reading the clock takes longer than waiting for a neighbour that is on
    // time.
    const Clock::time_point now = Clock::now();
    if (looks == looks_between) until = now + driver_.spin();
    if (now >= until || inbox_.waiting()) return false;
    if (looks > eager_looks) std::this_thread::yield();
  }
}

/// Called on a caller's thread. Returns false if an exception occurred; all groups have then
/// failed.
bool Engine::look_beside_safely(Clock::time_point now) {
  try {
    look_beside(now);
    return true;
  } catch (const std::exception& error) {
    fail_all(error);
    return false;
  }
}

}  // namespace mccl::engine
