// The part of GroupState that advances its calls.
#include <algorithm>
#include <new>
#include <thread>

#include "engine/groups/group_state.h"
#include "mccl/error.h"

namespace mccl::engine {
namespace {

/// Time after a link breaks for which this rank waits for the peer to announce the reason.
constexpr std::chrono::milliseconds kAnnouncementGrace{250};
/// Time without progress for which a carrier (carrier.h) is polled without a sleep between polls.
/// kBeforeNapsOfCallers applies if the driving thread is a caller that waits for its call,
/// kBeforeNaps otherwise.
constexpr std::chrono::milliseconds kBeforeNapsOfCallers{100};
constexpr std::chrono::milliseconds kBeforeNaps{1};
/// The longest sleep between two polls of a carrier (carrier.h).
constexpr std::chrono::microseconds kLongestRest{100};

}  // namespace

void GroupState::start(const std::shared_ptr<Operation>& operation) {
  operation->flight.group = flight_group_;
  if (failed()) return end_with(failure(), operation, "cannot start");
  operation->started = operation->submitted;
  const Clock::time_point now = Clock::now();
  if (idle()) last_progress_ = next_probe_ = now;
  if (calls_.empty()) collectives_moved_ = now;
  around_.completions.note(
      *operation, is_collective(operation->call) ? FlightEntry::queued : FlightEntry::running);
  try {
    if (carrier_ && !is_collective(operation->call)) {
      carrier_->post(operation);
    } else if (operation->call.collective == Collective::send) {
      messages_.post_send(operation);
    } else if (operation->call.collective == Collective::recv) {
      messages_.post_receive(operation);
    } else {
      calls_.push_back(operation);
      // Other ranks may have begun the call already, and the carrier's library cannot cancel it
      // there. So the call begins here, before an error on this rank can fail the group.
      if (carrier_ && !collective_runs()) begin_first();
    }
  } catch (const std::exception& error) {
    fail(failure_in(operation->call, error));
    finish(operation, std::current_exception());  // no-op if fail() has already ended the call
  }
}

bool GroupState::advance(Clock::time_point now) {
  if (failed()) {
    settle_failure();
    // The driver keeps polling until the carrier no longer accesses the callers' memory.
    if (carrier_) std::this_thread::yield();
    return true;
  }
  if (suspicion_) return confirm_suspicion();
  if (carrier_ && fail_without_carrier()) return true;
  try {
    const bool moved = advance_calls(now);
    if (messages_.blocked()) ask_for_room(now);
    if (!moved) return carrier_ && carrier_->has_to_be_asked() && stay_awake(now);
    last_progress_ = now;
  } catch (const MemberGone& gone) {
    if (!give_up_messages(gone)) suspect(gone);
  } catch (const std::exception& error) {
    suspect(error);
  }
  return true;
}

/// Handles an error of advance_calls(). If a peer is gone or the carrier's error does not name the
/// cause, another member may announce it, so the group waits a moment before it fails. Any other
/// error fails the group immediately.
void GroupState::suspect(const std::exception& error) {
  Failure failure = failure_in(call_under_way(), error);
  const bool is_clear =
      carrier_ ? failure.kind == FailureKind::mismatch && !dynamic_cast<const CallsDiffer*>(&error)
               : failure.kind != FailureKind::peer;
  if (is_clear) return fail(std::move(failure));
  suspicion_ = std::move(failure);
  suspected_at_ = Clock::now();
  // If a member made a different call, it detects and announces the mismatch when this probe
  // arrives.
  if (carrier_) probe(suspected_at_);
}

/// Makes a short pause before the driver polls the carrier again, because nothing wakes the driver
/// when the carrier's calls make progress. The pauses grow while there is no progress. Returns
/// true, so that the driver polls again instead of sleeping in poll(2).
bool GroupState::stay_awake(Clock::time_point now) const {
  const Clock::duration idle = now - last_progress_;
  if (idle < kBeforeNaps || (idle < kBeforeNapsOfCallers && around_.caller_drives())) {
    std::this_thread::yield();
  } else {
    std::this_thread::sleep_for(std::min<Clock::duration>(idle / 16, kLongestRest));
  }
  return true;
}

bool GroupState::advance_calls(Clock::time_point now) {
  in_messages_ = false;
  const bool collectives_moved = advance_collectives(now);
  in_messages_ = true;
  return advance_messages() || collectives_moved;
}

bool GroupState::advance_messages() {
  if (carrier_ ? carrier_->messages().empty() : messages_.idle()) return false;
  OperationList carried;
  const auto finish_all = [&] {
    while (!carried.empty()) finish(carried.pop_front());
    finish_messages();
  };
  try {
    const bool moved = carrier_ ? carrier_->advance_messages(carried) : messages_.advance();
    finish_all();
    return moved;
  } catch (...) {
    finish_all();
    throw;
  }
}

/// Finishes messages whose bytes have arrived or have been sent, even if the group has failed.
void GroupState::finish_messages() {
  for (OperationList done = messages_.take_finished(); !done.empty();) finish(done.pop_front());
}

/// Called while `suspicion_` is set. A group with a carrier fails after kAnnouncementGrace. Any
/// other group tries to advance its calls, because data that the peer sent before the link broke
/// may still arrive. If this succeeds, drops the suspicion. If it fails again, the group fails;
/// after a PeerError, it first waits for the peer to announce the reason.
bool GroupState::confirm_suspicion() {
  around_.look_beside_soon();
  const Clock::time_point now = Clock::now();
  if (carrier_) {
    if (now - suspected_at_ < kAnnouncementGrace) return stay_awake(now);
    fail(std::move(*suspicion_));
    return true;
  }
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
    blame_the_dead(*suspicion_);
    fail(std::move(*suspicion_));
  } catch (const std::exception& error) {
    fail(failure_in(call_under_way(), error));
  }
  return true;
}

/// If a member is dead, attributes the failure to this member. The broken link may lead to another
/// member, which has closed its links because it learned of the death first.
void GroupState::blame_the_dead(Failure& failure) noexcept {
  if (!dead_.valid() || failure.kind != FailureKind::peer) return;
  try {
    failure.reason = why_dead();
  } catch (const std::bad_alloc&) {
    // Memory has run out. The failure keeps the reason of the broken link.
  }
}

/// Asks peers to read this rank's messages, because a peer that has no pending messages of its own
/// reads only when asked.
void GroupState::ask_for_room(Clock::time_point now) {
  messages_.ask_for_room(now, [this](GroupRank member, std::uint64_t number) {
    ControlMessage message = about_group(ControlKind::blocked);
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

/// Returns the call that advance_calls() was working on when it threw.
Call GroupState::call_under_way() const {
  return in_messages_ || calls_.empty() ? a_message : calls_.front().call;
}

void GroupState::watch(Sleep& sleep) {
  if (suspicion_) return;
  executor_.watch(sleep);
  messages_.watch(sleep);
}

bool GroupState::may_run_at_once(const Task& task) const {
  if (failed() || suspicion_ || task.call.kind == ReduceKind::premul_sum) return false;
  if (!is_collective(task.call))
    return !carrier_ && (task.call.collective == Collective::send || task.call.peer >= 0);
  return carrier_ ? carrier_->runs_at_once(task) : facts().window_bytes != 0;
}

/// Another thread may submit a call at the same time. The order of the two calls is then undefined,
/// because the callers did not order them.
AtOnce GroupState::begin_at_once(Task& task) {
  task.flight.group = flight_group_;
  if (task.call.collective == Collective::recv)
    return messages_.may_receive_at_once(task) ? AtOnce::not_yet : AtOnce::no;
  const Plan* plan = nullptr;
  if (is_collective(task.call) && !carrier_) {
    plan = &plan_for(task);
    if (!plan->schedule.in_order) return AtOnce::no;
  }
  try {
    if (task.call.collective == Collective::send) return messages_.send_at_once(task);
    task.call.sequence = next_sequence();
    if (plan) {
      begin_planned(task, *plan);
    } else {
      begin_carried(task);
    }
  } catch (const PeerError& error) {
    // If this function returns `no`, the caller submits the send, which fails again in the driver.
    // The driver then waits a moment for the peer to announce the reason.
    if (task.call.collective == Collective::send) return AtOnce::no;
    fail_at_once(task, error);
  } catch (const std::exception& error) {
    fail_at_once(task, error);
  }
  return AtOnce::not_yet;
}

void GroupState::fail_at_once(const Task& task, const std::exception& error) {
  around_.completions.fail_at_once(task);
  fail(failure_in(task.call, error));
  std::rethrow_exception(error_of(failure(), task.call, membership_.rank, "failed"));
}

AtOnce GroupState::advance_at_once(Task& task) {
  if (!is_collective(task.call)) return messages_.receive_at_once(task);
  advance_collective();
  if (!collective_has_finished()) return AtOnce::not_yet;
  end_collective();
  return AtOnce::whole;
}

std::shared_ptr<Operation> GroupState::received_from(GroupRank source) {
  std::shared_ptr<Operation>& received = received_[source];
  if (received) return received;
  received = std::make_shared<Operation>(Task());
  received->received_from(source);
  static_cast<void>(received->finish(nullptr));
  return received;
}

DepartingLinks GroupState::carry_by(std::unique_ptr<Carrier> carrier) noexcept {
  carrier_ = std::move(carrier);
  algorithm_ = around_.completions.recorder().index_of(carrier_->name());
  release_window();
  for (int i = 0; i < kCollectiveCount; ++i)
    around_.metrics.record_algorithm(static_cast<Collective>(i), carrier_->name());
  return channels_.take_links();
}

void GroupState::go_on_with(const std::shared_ptr<Operation>& operation) {
  const Clock::time_point now = Clock::now();
  if (idle()) last_progress_ = next_probe_ = now;
  around_.completions.note(*operation, FlightEntry::running);
  if (!is_collective(operation->call)) return messages_.go_on_with(operation);
  collectives_moved_ = now;
  calls_.push_front(operation);
  if (carried_ == Carried::no) executor_.moved_to(*operation);
}

}  // namespace mccl::engine
