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

/// Number of checks that are made without a pause between them. A pause would take as long as the
/// neighbour's arrival.
constexpr int kEagerLooks = 128;
/// Number of checks between two readings of the clock; the second value applies if ranks share
/// cores.
constexpr int kLooks = 64;
constexpr int kCrowdedLooks = 8;
/// Interval between checks of control messages and links while a carrier's calls end at once. A
/// check takes as long as many such calls. Calls that do not end at once are left to the driver,
/// which checks more often.
constexpr std::chrono::milliseconds kBesideCarrier{5};
/// Maximum time without a check of control messages and deadlines.
constexpr std::chrono::milliseconds kLongestSpin{1};

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
  if (is_due && (!look_beside_safely(now) || has_calls() || group->failed())) return {};
  // Must follow look_beside_safely(), which may clear plans that have not been used for a while.
  if (!group->begin_at_once(task)) return {};
  try {
    if (spin_until(group->is_carried(), [&] { return group->advance_at_once(); })) {
      completions_.end_at_once(task, now);
      return {.done = true, .begun = nullptr};
    }
  } catch (const PeerError&) {
    // The driver gets this error again, and waits a moment for the peer's own explanation.
  } catch (const std::exception& error) {
    if (!group->is_carried()) fail_at_once(*group, task.call, error);
  }
  try {
    return {.done = false, .begun = hand_over(group, task, timeout)};
  } catch (const std::exception& error) {
    fail_at_once(*group, task.call, error);
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
    fail_at_once(*group, message.call, error);
  }
}

Messages::AtOnce Engine::run_at_once(const std::shared_ptr<Operation>& message) {
  if (abandoned_) return Messages::AtOnce::no;
  std::unique_lock lock(driver_.mutex(), std::try_to_lock);
  if (!lock) return Messages::AtOnce::no;
  try {
    const Messages::AtOnce result = try_to_transfer(*message->group, *message);
    if (result == Messages::AtOnce::not_yet) continue_later(message);
    if (result != Messages::AtOnce::no) message->held_back.store(false, std::memory_order_release);
    return result;
  } catch (const std::exception&) {
    return Messages::AtOnce::no;  // The group has failed. A submitted call ends with its error.
  }
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

/// Called with the progress lock held. Lets the driver send the rest of a message. Fails the group
/// and throws if there is no memory for that.
void Engine::continue_later(const std::shared_ptr<Operation>& message) {
  message->submitted = message->started = Clock::now();
  try {
    groups_.go_on_with(message);
  } catch (const std::exception& error) {
    fail_at_once(*message->group, message->call, error);
  }
  driver_.wake();
}

/// Called with the progress lock held. Fails the group and throws. The progress thread runs the
/// callbacks of the calls that end.
void Engine::fail_at_once(GroupState& group, const Call& call, const std::exception& error) {
  driver_.wake();
  group.fail_at_once(call, error);
}

/// Called with the progress lock held. A receive may wait for its message for as long as a driver
/// spins before it sleeps.
Messages::AtOnce Engine::try_to_transfer(GroupState& group, Task& message) {
  using enum Messages::AtOnce;
  const bool sends = message.call.collective == Collective::send;
  if (driver_.stopping() || (sends ? inbox_.waiting() : has_calls())) return no;
  const Clock::time_point now = completions_.begin_at_once();
  message.traffic.timed = now != Clock::time_point();
  if (message.traffic.timed && (!look_beside_safely(now) || (!sends && has_calls()))) return no;
  Messages::AtOnce result = no;
  try {
    const auto advance = [&] {
      result = group.transfer_at_once(message);
      return result != not_yet;
    };
    if (group.may_transfer_at_once(message)) sends ? advance() : spin_until(false, advance);
    if (result == not_yet && !sends) result = no;
  } catch (const PeerError&) {
    // The driver gets this error again, and waits a moment for the peer's own explanation.
    result = no;
  } catch (const std::exception& error) {
    fail_at_once(group, message.call, error);
  }
  if (result == whole) completions_.end_at_once(message, now);
  if (sends && sleeps_too_long()) driver_.wake();
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

/// Calls `advance` until it returns true, for as long as a driver spins before it sleeps. Returns
/// false after that time, or if the inbox is not empty. `carried` is true if a carrier runs the
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
    // The clock is not read earlier, because reading it takes longer than waiting for a neighbour
    // that is on time.
    const Clock::time_point now = Clock::now();
    if (looks == looks_between)
      until = now + std::min<Clock::duration>(driver_.spin(), kLongestSpin);
    if (now >= until || inbox_.waiting()) return false;
    if (looks > eager_looks) std::this_thread::yield();
  }
}

/// Called on a caller's thread. Returns false if an exception occurred; all groups have then
/// failed. Wakes the progress thread for what must happen because of what was heard: its own sleep
/// does not end for bytes that another thread has read.
bool Engine::look_beside_safely(Clock::time_point now) {
  const bool was_idle = groups_.idle();
  bool safe = true;
  try {
    look_beside(now);
  } catch (const std::exception& error) {
    fail_all(error);
    safe = false;
  }
  if ((was_idle && !groups_.idle()) || completions_.callbacks_wait()) driver_.wake();
  return safe;
}

}  // namespace mccl::engine
