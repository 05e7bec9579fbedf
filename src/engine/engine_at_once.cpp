// A call that goes through the node's window, or by a carrier, on the caller's own thread, without
// a Work: what small calls of a busy loop take, where every lock and every look at the clock would
// show.
#include <limits>
#include <thread>

#include "engine/driving/pause.h"
#include "engine/engine.h"
#include "mccl/error.h"

namespace mccl::engine {
namespace {

/// Looks without a breath between them: it would be as long as what is waited for.
constexpr int kEagerLooks = 128;
/// Looks between two looks at the clock.
constexpr int kLooks = 64;
constexpr int kCrowdedLooks = 8;

}  // namespace

Engine::AtOnce Engine::run_at_once(const std::shared_ptr<GroupState>& group, Task& task,
                                   std::chrono::milliseconds timeout) {
  if (abandoned_) return {};
  std::unique_lock lock(driver_.mutex(), std::try_to_lock);
  if (!lock || has_calls() || driver_.stopping() || !group->may_run_at_once(task)) return {};
  const Clock::time_point now = completions_.begin_at_once();
  if (now != Clock::time_point() && (!look_beside_safely(now) || group->failed())) return {};
  // After looking beside, which may forget plans that were not used for a while.
  if (!group->begin_at_once(task)) return {};
  try {
    if (spin_until_finished(*group)) {
      completions_.end_at_once(task, now);
      return {.done = true, .begun = nullptr};
    }
  } catch (const PeerError&) {
    // The driver meets it again, and waits a moment for the peer's own word of it.
  } catch (const std::exception& error) {
    if (!group->is_carried()) group->fail_at_once(task.call, error);
  }
  try {
    return {.done = false, .begun = hand_over(group, task, timeout)};
  } catch (const std::exception& error) {
    group->fail_at_once(task.call, error);
  }
}

/// To the driver, who goes on with the call.
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

/// For as long as a driver would before it sleeps.
bool Engine::spin_until_finished(GroupState& group) {
  const bool crowded = driver_.shares_cores();
  // A look at a carrier is a breath already.
  const int eager_looks = group.is_carried() ? std::numeric_limits<int>::max() : kEagerLooks;
  // Where ranks share cores, whoever is waited for may need this one.
  const int looks_between = crowded ? kCrowdedLooks : kLooks;
  Clock::time_point until;
  for (int looks = 1;; ++looks) {
    if (group.advance_at_once()) return true;
    if (crowded) {
      std::this_thread::yield();
    } else if (looks > eager_looks) {
      pause_core();
    }
    if (looks % looks_between != 0) continue;
    // Not before: reading the clock takes longer than a neighbour that is on time.
    const Clock::time_point now = Clock::now();
    if (looks == looks_between) until = now + driver_.spin();
    if (now >= until || inbox_.waiting()) return false;
    if (looks > eager_looks) std::this_thread::yield();
  }
}

/// For a caller's thread. False when it went wrong, which every group has been told.
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
