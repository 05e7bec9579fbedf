// The part of Engine that its Driver calls: the work of one pass, and the events that end the
// driver's sleep.
#include <fmt/format.h>

#include <algorithm>

#include "engine/engine.h"
#include "mccl/error.h"

namespace mccl::engine {
namespace {

/// Interval at which the deadlines of calls are checked.
constexpr std::chrono::milliseconds kWatch{10};

/// Returns the first multiple of `interval` after `now`. The ranks of a host read the same clock,
/// so all of them check during the same call. If they checked at different times, the check of each
/// rank would delay one more call of all ranks.
Clock::time_point next_multiple(Clock::time_point now, Clock::duration interval) {
  return now + interval - now.time_since_epoch() % interval;
}

}  // namespace

/// Body of the progress thread. The thread owns a reference to the engine while it drives, so a
/// callback may drop the last other reference. The thread owns no reference while it sleeps, so the
/// last owner can destroy the engine; the destructor then wakes and joins the thread.
void Engine::progress_loop(const std::weak_ptr<Engine>& engine) {
  Sleep sleep;
  while (std::shared_ptr<Engine> awake = engine.lock()) {
    if (!awake->driver_.drive_until_idle(sleep)) return;
    awake.reset();
    if (!engine.expired()) {
      ::poll(sleep.watched.data(), sleep.watched.size(), sleep.timeout_ms());
    }
  }
}

/// An exception on this rank fails its groups, which announce the failure to their other members.
/// The exception does not end the process.
bool Engine::pass() {
  try {
    return move();
  } catch (const std::exception& error) {
    fail_all(error);
    return true;
  }
}

bool Engine::move() {
  const bool handed_over = inbox_.waiting();
  if (handed_over) take_in();
  const Clock::time_point now = Clock::now();
  look_beside(now);
  return groups_.advance(now) || handed_over;
}

void Engine::take_in() noexcept {
  inbox_.take(taken_);
  for (const auto& group : taken_.created) {
    attempt(*group, [&] { groups_.add(group); });
  }
  while (!taken_.submitted.empty()) {
    const std::shared_ptr<Operation> operation = taken_.submitted.pop_front();
    attempt(
        *operation->group, [&] { start(operation); }, operation);
  }
  for (const auto& group : taken_.aborted) group->settle_failure();
  for (const auto& group : taken_.closed) groups_.remove(group);
  taken_.clear();
}

/// Runs `action` for one submitted item. An exception, such as std::bad_alloc, fails only the
/// item's group, so that the other items are still handled.
void Engine::attempt(GroupState& group, const std::function<void()>& action,
                     const std::shared_ptr<Operation>& operation) noexcept {
  try {
    action();
  } catch (const std::exception& error) {
    group.fail(failure_of(error));  // also ends a call that start() has queued
    if (!operation) return;
    completions_.finish(operation, error_of(group.failure(), operation->call,
                                            group.membership().rank, "cannot start"));
  }
}

void Engine::start(const std::shared_ptr<Operation>& operation) {
  if (driver_.stopping()) operation->group->mark_failed(aborted("this rank has shut down"));
  groups_.start(operation);
}

void Engine::look_beside(Clock::time_point now) {
  if (now >= next_look_) hear_and_connect(now);
  if (now >= next_watch_) keep_time(now);
}

/// Handles control messages and new links. Peers that a transport has found unreachable are handled
/// first. Links that end as a result are thus attributed to the loss of the peer.
void Engine::hear_and_connect(Clock::time_point now) {
  next_look_ = next_multiple(now, between_looks_);
  for (const auto& [peer, reason] : links_.take_lost()) {
    if (!peers_.connected(peer)) continue;
    peers_.give_up(peer, reason);
    log_.warn("rank {} is considered dead: {}", peer, reason);
    lose(peer, reason, transport::Loss::silence);
    // The peer may be alive, but it can no longer reach the other ranks, so all groups that contain
    // the peer must fail.
    groups_.fail_without(peer, reason, false);
  }
  peers_.flush();
  unheard_ =
      peers_.receive([this](WorldRank peer, const ControlMessage& message) { hear(peer, message); },
                     [this](WorldRank peer, const std::string& why) {
                       lose(peer, why, transport::Loss::reported);
                     });
  if (now >= reports_.next_answer()) report_safely([&] { reports_.answer_late(now); });
  links_.send_receipts();
  links_.progress([this](std::uint64_t group) { return groups_.is_closed(group); });
  for (const transport::LinkEvent& broken : links_.take_broken())
    groups_.lose_link(broken.peer, broken.key.group, broken.reason);
}

void Engine::hear(WorldRank peer, const ControlMessage& message) {
  heart_.heard(peer);
  if (message.kind == ControlKind::heartbeat) return;
  if (message.kind == ControlKind::describe || message.kind == ControlKind::description)
    return report_safely([&] { reports_.hear(peer, message, Clock::now()); });
  if (message.kind == ControlKind::received) return links_.hear_receipt(peer, message);
  groups_.hear(peer, message);
}

/// If memory has run out, drops the action, because only the output of `mccl status` depends on it.
void Engine::report_safely(const std::function<void()>& action) {
  try {
    action();
  } catch (const std::bad_alloc&) {
    log_.debug("this rank has no memory left for a status report");
  }
}

void Engine::lose(WorldRank peer, const std::string& reason, transport::Loss loss) {
  log_.info("rank {}: {}", peer, reason);
  heart_.forget(peer);
  reports_.forget(peer);
  groups_.lose(peer, reason, loss);
  if (peers_.has_left(peer)) return;
  groups_.fail_without(peer, reason, true);
  for (const auto& [other, relay] : met_.relayed) {
    if (relay != peer.number() || !peers_.connected(WorldRank(other))) continue;
    const std::string without = fmt::format(
        "it can no longer be reached, because its connections passed through rank {}: {}", peer,
        reason);
    peers_.give_up(WorldRank(other), without);
    lose(WorldRank(other), without, transport::Loss::silence);
  }
}

void Engine::keep_time(Clock::time_point now) {
  next_watch_ = next_multiple(now, kWatch);
  if (size() > 1 && now >= heart_.next_beat()) {
    hear_and_connect(now);  // a peer whose messages have arrived must not count as silent
    beat(now);
  }
  groups_.departing().sweep(now);
  groups_.for_each_active([&](GroupState& group) {
    group.note_waits(now);
    group.watch_time(now);
    group.warn_of_waits(now, heart_);
  });
}

void Engine::beat(Clock::time_point now) {
  for (const Heartbeats::Silent& silent : heart_.beat(now)) {
    if (!peers_.has_left(silent.peer))
      log_.warn("rank {} is considered dead: {}", silent.peer, silent.reason);
    lose(silent.peer, silent.reason, transport::Loss::silence);
  }
  for (WorldRank peer(0); peer.number() < size(); ++peer) {
    if (peers_.connected(peer) && !memory_->neighbour(peer) && heart_.has_fallen_silent(peer))
      links_.suspect(peer);
  }
  if (memory_->arena) memory_->arena->collect();
  groups_.for_each([&](GroupState& group) {
    group.watch_delivery(now, heart_);
    group.release_idle(now);
    group.watch_enqueued(now, heart_);
  });
  staging_.touch();
  staging_.report();
}

void Engine::fail_all(const std::exception& error) noexcept {
  const Failure failure = failure_of(error);
  log_.error("rank {} cannot continue, so all its groups fail: {}", rank(), failure.reason);
  groups_.fail_all(failure);
}

bool Engine::run_callbacks(std::unique_lock<std::mutex>& lock) {
  OperationList calls = completions_.take_callbacks();
  lock.unlock();
  // The operations are destroyed without the lock: they may hold the last references to this
  // engine.
  completions_.run(std::move(calls));
  return lock.try_lock();
}

bool Engine::arm() { return !groups_.idle() && links_.arm(); }

void Engine::disarm() { links_.disarm(); }

void Engine::prepare(Sleep& sleep) {
  peers_.watch(sleep);
  links_.watch(sleep.watched);
  sleep.beside_end = sleep.watched.size();
  groups_.for_each_active([&](GroupState& group) { group.watch(sleep); });
  const Clock::time_point now = Clock::now();
  if (size() > 1) {
    const Clock::time_point due = next_deadline();
    // sleeps_too_long() needs the deadline for which the progress thread sleeps. A caller's sleep
    // does not change that deadline.
    if (!driver_.caller_drives()) due_ = due;
    sleep.until = std::min({sleep.until, due, std::max(heart_.next_beat(), next_watch_)});
  }
  if (unheard_) sleep.until = now;
  if (!groups_.idle() || !groups_.departing().empty()) {
    sleep.until = std::min(sleep.until, now + longest_nap_);
  }
}

/// The driver checked the control connections just before this sleep. The next check can wait if no
/// control connection has become ready.
void Engine::has_slept(bool beside, Clock::time_point now) {
  const bool look = beside || unheard_ || now >= due_;
  next_look_ = look ? Clock::time_point() : next_multiple(now, between_looks_);
}

}  // namespace mccl::engine
