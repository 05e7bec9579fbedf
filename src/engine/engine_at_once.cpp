// Runs a call that needs only the node's window or a carrier on the caller's own thread, without a
// Work. Small calls in a busy loop take this path, where the cost of a lock or of a clock reading
// is measurable.
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
  if (!lock || has_calls() || driver_.stopping() || !group->may_run_at_once(task)) return {};
  const Clock::time_point now = completions_.begin_at_once();
  const bool is_due = now != Clock::time_point() &&
                      (!group->is_carried() || now >= next_look_ - between_looks_ + kBesideCarrier);
  if (is_due && (!look_beside_safely(now) || group->failed())) return {};
  // Must follow look_beside_safely(), which may clear plans that have not been used for a while.
  if (!group->begin_at_once(task)) return {};
  try {
    if (spin_until_finished(*group)) {
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

/// Hands the started call over to the driver, which continues it.
std::shared_ptr<Operation> Engine::hand_over(const std::shared_ptr<GroupState>& group, Task& task,
                                             std::chrono::milliseconds timeout) {
  auto begun = std::make_shared<Operation>(std::move(task));
  begun->group = group;
  begun->driver = weak_from_this();
  begun->caller_waits = true;
  begun->submitted = begun->started = Clock::now();
  begun->deadline = deadline_after(begun->started, timeout);
  groups_.go_on_with(begun);
  return begun;
}

/// Spins as long as a driver does before it sleeps. Returns false if the call has not finished by
/// then, or if the inbox is not empty.
bool Engine::spin_until_finished(GroupState& group) {
  const bool crowded = driver_.shares_cores();
  // A carrier tests its call several times, which takes long enough that no pause is needed.
  const bool carried = group.is_carried();
  const int eager_looks = carried ? std::numeric_limits<int>::max() : kEagerLooks;
  // Where ranks share cores, a rank that this call waits for may need this core.
  const int looks_between = carried ? 1 : crowded ? kCrowdedLooks : kLooks;
  Clock::time_point until;
  for (int looks = 1;; ++looks) {
    if (group.advance_at_once()) return true;
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
