// The part of GroupState that moves its calls.
#include "engine/groups/group_state.h"
#include "mccl/error.h"

namespace mccl::engine {
namespace {

/// How long a broken link waits for the peer to announce why it closed it.
constexpr std::chrono::milliseconds kAnnouncementGrace{250};

}  // namespace

void GroupState::start(const std::shared_ptr<Operation>& operation) {
  if (failed()) {
    return finish(operation,
                  error_of(failure(), operation->call, membership_.rank, "cannot start"));
  }
  operation->started = operation->submitted;
  const Clock::time_point now = Clock::now();
  if (idle()) last_progress_ = next_probe_ = now;
  if (collectives_.empty()) collectives_moved_ = now;
  try {
    if (operation->call.collective == Collective::send) {
      messages_.post_send(operation);
    } else if (operation->call.collective == Collective::recv) {
      messages_.post_receive(operation);
    } else {
      collectives_.push(operation);
    }
  } catch (const std::exception& error) {
    fail(failure_in(operation->call, error));
    finish(operation, std::current_exception());  // no-op if fail() has already ended it
  }
}

bool GroupState::advance(Clock::time_point now) {
  if (failed()) {
    settle_failure();
    return true;
  }
  if (suspicion_) return confirm_suspicion();
  try {
    const bool moved = advance_calls(now);
    if (messages_.blocked()) ask_for_room(now);
    if (!moved) return false;
    last_progress_ = now;
  } catch (const MemberGone& gone) {
    if (!give_up_messages(gone)) suspect(gone);
  } catch (const std::exception& error) {
    suspect(error);
  }
  return true;
}

/// If a peer is gone, waits for its possible announcement. Any other error fails the group at once.
void GroupState::suspect(const std::exception& error) {
  Failure failure = failure_in(call_under_way(), error);
  if (failure.kind != FailureKind::peer) return fail(std::move(failure));
  suspicion_ = std::move(failure);
  suspected_at_ = Clock::now();
}

bool GroupState::advance_calls(Clock::time_point now) {
  in_messages_ = false;
  const bool collectives_moved = advance_collectives(now);
  in_messages_ = true;
  return advance_messages() || collectives_moved;
}

bool GroupState::advance_collectives(Clock::time_point now) {
  bool moved = false;
  while (!collectives_.empty()) {
    if (!collectives_.running()) {
      if (!window_ready()) break;
      const std::size_t scratch = collectives_.scratch_bytes();
      collectives_.begin_first();
      if (collectives_.scratch_bytes() != scratch) weigh();
    }
    moved |= collectives_.advance();
    const std::shared_ptr<Operation> finished = collectives_.take_finished();
    if (!finished) break;
    finish(finished);
    moved = true;
  }
  if (moved) collectives_moved_ = now;
  return moved;
}

bool GroupState::advance_messages() {
  if (messages_.idle()) return false;
  try {
    const bool moved = messages_.advance();
    finish_messages();
    return moved;
  } catch (...) {
    finish_messages();
    throw;
  }
}

/// Finishes messages whose bytes have arrived or have been sent, whatever happens to the group.
void GroupState::finish_messages() {
  for (OperationList done = messages_.take_finished(); !done.empty();) finish(done.pop_front());
}

/// Data that was in flight when a link ended may still arrive. Then the calls go on, and the
/// suspicion is dropped.
bool GroupState::confirm_suspicion() {
  around_.look_beside_soon();
  const Clock::time_point now = Clock::now();
  try {
    const bool moved = advance_calls(now);
    suspicion_.reset();
    if (moved) last_progress_ = now;
    return moved;
  } catch (const PeerError& error) {
    const auto* const gone = dynamic_cast<const MemberGone*>(&error);
    if (gone && give_up_messages(*gone)) {
      suspicion_.reset();
      return true;
    }
    const bool may_say_why = !gone || around_.peers.connected(membership_.members[gone->member()]);
    const Clock::duration grace = may_say_why ? kAnnouncementGrace : kDeathGrace;
    if (!fell_silent_ && now - suspected_at_ < grace) return false;
    fail(std::move(*suspicion_));
  } catch (const std::exception& error) {
    fail(failure_in(call_under_way(), error));
  }
  return true;
}

/// Asks peers to take in messages, because a receiver without calls reads nothing by itself.
void GroupState::ask_for_room(Clock::time_point now) {
  messages_.ask_for_room(now, [this](GroupRank member, std::uint64_t number) {
    ControlMessage message;
    message.kind = ControlKind::blocked;
    message.key.group = id();
    message.call = a_message;
    message.call.sequence = number;
    around_.peers.send(membership_.members[member], message);
  });
}

Failure GroupState::failure_in(const Call& call, const std::exception& error) const noexcept {
  Failure failure = failure_of(error);
  failure.call = call;
  failure.seen_by = membership_.rank;
  return failure;
}

/// The call that advance_calls() was working on when it threw.
Call GroupState::call_under_way() const {
  if (in_messages_ || collectives_.calls().empty()) return a_message;
  return collectives_.calls().front().call;
}

void GroupState::watch(Sleep& sleep) {
  if (suspicion_) return;
  collectives_.watch(sleep);
  messages_.watch(sleep);
}

bool GroupState::may_run_at_once(const Task& task) const {
  return !failed() && !suspicion_ && facts().window_bytes != 0 &&
         task.call.kind != ReduceKind::premul_sum;
}

const Plan* GroupState::plan_at_once(const Task& task) {
  const Plan& plan = collectives_.plan_for(task);
  return plan.schedule.in_order ? &plan : nullptr;
}

void GroupState::begin_at_once(Task& task, const Plan& plan) {
  try {
    collectives_.begin(task, plan);
  } catch (const std::exception& error) {
    fail_at_once(task.call, error);
  }
}

void GroupState::fail_at_once(const Call& call, const std::exception& error) {
  fail(failure_in(call, error));
  std::rethrow_exception(error_of(failure(), call, membership_.rank, "failed"));
}

bool GroupState::advance_at_once() {
  collectives_.advance();
  if (!collectives_.finished()) return false;
  collectives_.end();
  return true;
}

void GroupState::go_on_with(const std::shared_ptr<Operation>& operation) {
  last_progress_ = next_probe_ = collectives_moved_ = Clock::now();
  collectives_.adopt(operation);
}

}  // namespace mccl::engine
