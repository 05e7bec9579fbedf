// The driving half of Engine.
#include <fmt/format.h>

#include <algorithm>

#include "engine/engine.h"
#include "engine/pause.h"
#include "kernels/reduce.h"
#include "mccl/error.h"

namespace mccl::engine {
namespace {

/// How long the driver keeps its core to itself while it looks for data; after that it lets others
/// run between looks, among whom may be the very rank that it waits for.
constexpr std::chrono::microseconds kPause{3};
/// How long a broken link waits for the peer to say why it closed it.
constexpr std::chrono::milliseconds kAnnouncementGrace{250};

schedule::Problem problem_of(const GroupState& group, const Task& task) {
  schedule::Problem problem;
  problem.collective = task.call.collective;
  problem.rank = group.rank;
  problem.size = group.size();
  problem.root = std::max(task.call.root, 0);
  if (task.even) {
    const auto ranks = static_cast<std::size_t>(group.size());
    problem.counts.assign(ranks, task.call.count / ranks);
    if (task.call.collective == Collective::all_to_all) {
      problem.recv_counts = problem.counts;
      problem.even = true;
    }
  } else if (task.counts.empty()) {
    problem.count = task.call.count;
  } else {
    problem.counts = task.counts;
    problem.recv_counts = task.recv_counts;
  }
  problem.in_place = task.call.collective == Collective::broadcast || task.in_place;
  return problem;
}

}  // namespace

/// Of the progress thread. While it drives it holds the engine, which a callback may let go of;
/// while it sleeps, whoever destroys the engine wakes it and waits for its end.
void Engine::progress_loop(const std::weak_ptr<Engine>& engine) {
  std::vector<pollfd> watched;
  int timeout_ms = -1;
  while (std::shared_ptr<Engine> awake = engine.lock()) {
    if (!awake->drive_until_idle(watched, timeout_ms)) return;
    awake.reset();
    if (!engine.expired()) ::poll(watched.data(), watched.size(), timeout_ms);
  }
}

/// What to sleep for is copied, since others drive meanwhile. False when there is no more to drive.
bool Engine::drive_until_idle(std::vector<pollfd>& watched, int& timeout_ms) {
  std::unique_lock lock(progress_mutex_);
  wake_pipe_.drain();
  next_housekeeping_ = {};
  do {
    if (!lock) lock.lock();
    drive(lock, nullptr, Clock::time_point::max());
  } while (!stopping_ && (!lock || !fall_asleep()));
  if (stopping_) return false;
  prepare_sleep(Clock::time_point::max());
  watched = watched_;
  timeout_ms = sleep_ms_;
  return true;
}

/// Until `work` is done, or without one until nothing moves any more. May return without the lock.
void Engine::drive(std::unique_lock<std::mutex>& lock, const detail::WorkState* work,
                   Clock::time_point deadline) {
  if (sleeper_) sleeper_->wake_up();  // whoever sleeps now need not be woken: this thread looks
  Clock::time_point idle_since = Clock::now();
  while (!stopping_) {
    const bool moved = step();
    if (!deferred_.empty() && !run_deferred(lock)) return;
    if (work ? work->done() : active_.empty() && !inbox_waiting_) return;
    const Clock::time_point now = Clock::now();
    if (now >= deadline || forking_.load(std::memory_order_relaxed) > 0) return;
    if (moved) {
      idle_since = now;
    } else if (now - idle_since < spin_limit_) {
      !crowded_&& now - idle_since < kPause ? pause_core() : std::this_thread::yield();
    } else if (!work) {
      return;
    } else if (fall_asleep()) {
      prepare_sleep(deadline);
      sleep();
    }
  }
}

/// Asks neighbours to ring. False when something moved meanwhile, which they did not ring for.
bool Engine::fall_asleep() {
  if (!sleeper_ || active_.empty()) return true;
  sleeper_->fall_asleep();
  if (!step()) return true;
  sleeper_->wake_up();
  return false;
}

/// Whatever goes wrong on this rank ends its groups, which tell their other members, and not the
/// process.
bool Engine::step() {
  try {
    return look_at_everything();
  } catch (const std::exception& error) {
    fail_all(error);
    return true;
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

void Engine::fail_all(const std::exception& error) noexcept {
  try {
    const Failure failure = failure_of(error);
    log_.error("rank {} cannot go on: {}", rank(), failure.reason);
    for (const auto& [id, group] : groups_) {
      fail(*group,
           {failure.kind, fmt::format("rank {} cannot go on: {}", group->rank, failure.reason)});
    }
  } catch (...) {
    return;  // no memory even for that: the next look tries again
  }
}

bool Engine::look_at_everything() {
  bool moved = inbox_waiting_.load(std::memory_order_acquire) && drain_inbox();
  const Clock::time_point now = Clock::now();
  look_beside(now);
  for (std::size_t i = 0; i < active_.size();) {
    GroupState& group = *active_[i];
    if (advance(group)) {
      moved = true;
      group.last_progress = now;
    }
    if (group.idle()) {
      group.active = false;
      active_.erase(active_.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
  return moved;
}

bool Engine::advance(GroupState& group) {
  if (group.failed()) {
    settle_failure(group);
    return true;
  }
  if (group.suspicion) return confirm_suspicion(group);
  try {
    const bool collectives_moved = advance_collectives(group);
    return advance_messages(group) || collectives_moved;
  } catch (const std::exception& error) {
    Failure failure = failure_of(error);
    failure.reason = fmt::format("rank {} in {}: {}", group.rank,
                                 group.executor.running() ? describe(group.queue.front()->call)
                                                          : std::string("point to point"),
                                 failure.reason);
    if (failure.kind == FailureKind::peer) {
      group.suspicion = std::move(failure);
      group.suspected_at = Clock::now();
    } else {
      fail(group, failure);
    }
    return true;
  }
}

bool Engine::advance_collectives(GroupState& group) {
  bool moved = false;
  while (!group.queue.empty()) {
    if (!group.executor.running()) {
      if (!window_ready(group)) break;
      begin_next(group);
    }
    moved |= group.executor.advance();
    if (!group.executor.finished()) break;
    group.executor.end();
    const std::shared_ptr<Operation> operation = std::move(group.queue.front());
    group.queue.pop_front();
    finish(operation, nullptr);
    moved = true;
  }
  return moved;
}

bool Engine::advance_messages(GroupState& group) {
  if (group.messages.idle()) return false;
  try {
    const bool moved = group.messages.advance();
    finish_messages(group);
    return moved;
  } catch (...) {
    finish_messages(group);
    throw;
  }
}

/// Those whose bytes are there, or have gone, whatever becomes of the group.
void Engine::finish_messages(GroupState& group) {
  for (const std::shared_ptr<Operation>& operation : group.messages.take_finished()) {
    finish(operation, nullptr);
  }
}

/// What was on its way when a link ended may still come: then the call goes on, and ends with it.
bool Engine::confirm_suspicion(GroupState& group) {
  next_housekeeping_ = {};
  try {
    const bool collectives_moved = advance_collectives(group);
    const bool moved = advance_messages(group) || collectives_moved;
    group.suspicion.reset();
    return moved;
  } catch (const PeerError&) {
    if (Clock::now() - group.suspected_at < kAnnouncementGrace) return false;
    fail(group, *group.suspicion);
  } catch (const std::exception& error) {
    fail(group, failure_of(error));
  }
  return true;
}

void Engine::begin_next(GroupState& group) {
  Operation& operation = *group.queue.front();
  operation.started = Clock::now();
  group.recorder.started(operation.call);
  if (operation.call.kind == ReduceKind::premul_sum && operation.input.count > 0) {
    operation.multiplied.resize(operation.input.bytes());
    kernels::scale(operation.input.dtype, operation.input.data, operation.multiplied.data(),
                   operation.input.count, operation.factor);
    operation.input.data = operation.multiplied.data();
    operation.in_place = false;
  }
  const std::size_t scratch = group.executor.scratch_bytes();
  group.executor.begin(operation, plan_for(group, operation));
  if (group.executor.scratch_bytes() != scratch) weigh(group);
}

const Plan& Engine::plan_for(GroupState& group, Task& task) {
  PlanShape shape;
  shape.collective = task.call.collective;
  shape.root = task.call.root;
  shape.count = task.call.count;
  shape.even = task.even;
  shape.in_place = task.in_place;
  shape.element_bytes = size_of(task.call.dtype);
  const bool by_shape = task.counts.empty();
  const Plan* last = by_shape ? group.plans.same_as_last(shape) : nullptr;
  if (last) return *last;
  const schedule::Problem problem = problem_of(group, task);
  const Plan& plan =
      by_shape ? group.plans.plan(problem, shape) : group.plans.plan(problem, shape.element_bytes);
  if (log_.enabled(LogLevel::debug)) {
    log_.debug("{} of group '{}' goes {}", describe(task.call), group.name,
               schedule::name_of(plan.algorithm));
  }
  return plan;
}

bool Engine::drain_inbox() {
  Inbox inbox;
  {
    std::lock_guard lock(inbox_mutex_);
    inbox = std::exchange(inbox_, {});
    inbox_waiting_.store(false, std::memory_order_relaxed);
  }
  for (const std::shared_ptr<GroupState>& group : inbox.created) {
    groups_[group->id] = group;
    catch_up(*group);
  }
  for (const std::shared_ptr<Operation>& operation : inbox.submitted) start(operation);
  for (const std::shared_ptr<GroupState>& group : inbox.aborted) settle_failure(*group);
  for (const std::shared_ptr<GroupState>& group : inbox.closed) {
    end_group(*group, "the group was destroyed while calls were pending");
    groups_.erase(group->id);
    unmade_.closed(group->id);
  }
  return true;
}

void Engine::start(const std::shared_ptr<Operation>& operation) {
  GroupState& group = *operation->group;
  if (stopping_ || group.failed()) {
    const Failure failure = stopping_ && !group.failed()
                                ? Failure{FailureKind::aborted, "this rank has shut down"}
                                : group.failure();
    finish(operation, exception_of(failure.kind, fmt::format("{} on rank {} cannot start: {}",
                                                             describe(operation->call), group.rank,
                                                             failure.reason)));
    return;
  }
  operation->started = operation->submitted;
  try {
    activate(operation->group);
    if (operation->call.collective == Collective::send) {
      group.messages.post_send(operation);
    } else if (operation->call.collective == Collective::recv) {
      group.messages.post_receive(operation);
    } else {
      group.queue.push_back(operation);
    }
  } catch (const std::exception& error) {
    fail(group, failure_of(error));
    finish(operation, std::current_exception());
  }
}

void Engine::activate(const std::shared_ptr<GroupState>& group) {
  if (group->idle()) group->last_progress = group->next_probe = Clock::now();
  if (group->active) return;
  group->active = true;
  active_.push_back(group);
}

void Engine::finish(const std::shared_ptr<Operation>& operation, std::exception_ptr error) {
  if (counts_calls_.load(std::memory_order_relaxed)) {
    options_.metrics->record(operation->sample(Clock::now(), error != nullptr));
  }
  if (!stopping_) report_staging();  // shutdown has given all of it back
  std::vector<Work::Callback> callbacks = operation->finish(error);
  if (!callbacks.empty()) deferred_.emplace_back(std::move(callbacks), error);
}

/// False when the lock could not be had again at once: another thread drives now.
bool Engine::run_deferred(std::unique_lock<std::mutex>& lock) {
  const auto deferred = std::exchange(deferred_, {});
  lock.unlock();
  for (const auto& [callbacks, error] : deferred) {
    for (const Work::Callback& callback : callbacks) {
      try {
        callback(error);
      } catch (const std::exception& thrown) {
        log_.error("a callback of a call threw: {}", thrown.what());
      } catch (...) {
        log_.error("a callback of a call threw something that is no std::exception");
      }
    }
  }
  return lock.try_lock();
}

void Engine::prepare_sleep(Clock::time_point deadline) {
  watched_.clear();
  watched_.push_back({wake_pipe_.descriptor(), POLLIN, 0});
  peers_.watch(watched_);
  if (mesh_) mesh_->watch(watched_);
  control_end_ = watched_.size();
  for (const std::shared_ptr<GroupState>& group : active_) {
    if (group->suspicion) continue;
    group->executor.watch(watched_);
    group->messages.watch(watched_);
  }
  Clock::time_point until = deadline;
  if (mesh_) until = std::min({until, mesh_->next_deadline(), liveness_.next_beat()});
  const Clock::time_point now = Clock::now();
  if (!active_.empty() || !departing_.empty()) until = std::min(until, now + longest_nap_);
  sleep_ms_ = -1;
  if (until != Clock::time_point::max()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - now).count();
    sleep_ms_ = static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000));
  }
}

/// The driver's sleep, with the lock: whoever else wants something wakes it through the pipe. It
/// has looked beside the data then, so nobody need look again at once.
void Engine::sleep() {
  const int ready = ::poll(watched_.data(), watched_.size(), sleep_ms_);
  const auto begin = watched_.begin() + 1;  // bells ring the pipe for data
  const auto end = watched_.begin() + static_cast<std::ptrdiff_t>(control_end_);
  const bool beside_data = ready > 0 && std::any_of(begin, end, [](const pollfd& descriptor) {
                             return descriptor.revents != 0;
                           });
  const Clock::time_point now = Clock::now();
  const bool due = mesh_ && now >= mesh_->next_deadline();
  next_housekeeping_ = beside_data || due ? Clock::time_point() : now + between_looks_;
  wake_pipe_.drain();
  if (sleeper_) sleeper_->wake_up();
}

}  // namespace mccl::engine
