// The part of GroupState that checks deadlines, asks members for their last calls, and warns of
// calls that make no progress.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/groups/group_state.h"

namespace mccl::engine {
namespace {

/// Time without progress in any call after which the group asks its members for their last calls (a
/// probe). Also the interval between two probes.
constexpr std::chrono::seconds kProbeAfter{1};
/// Time without calls after which a group releases the memory of its collectives.
constexpr std::chrono::seconds kIdleAfter{10};
/// Time for which messages through a carrier (carrier.h) may still arrive after their sender has
/// announced that it has destroyed the group.
constexpr std::chrono::milliseconds kForTheLastMessages{200};
/// Time without progress after which the flight record shows which member a call waits for.
constexpr std::chrono::milliseconds kNoteWaitAfter{100};
/// Link::suspect() is called if a peer that is alive has acknowledged no data for the liveness
/// interval divided by this number.
constexpr int kSuspectedAfter = 4;

std::string doing(const Reported& member) {
  if (member.last.sequence == 0) return "has called no collective of this group yet";
  const std::string last = describe(member.last);
  return member.is_in_it ? "is in " + last : "has called no collective of this group since " + last;
}

}  // namespace

void GroupState::watch_time(Clock::time_point now) {
  if (failed() || end_late_messages(now) || fail_when_late(now) || fail_without_the_dead(now) ||
      fail_without_the_gone())
    return;
  if (now - last_progress_ >= probe_after() && now >= next_probe_) probe(now);
}

/// Returns how long calls may make no progress before the peers are probed. This is the shortest of
/// kProbeAfter, half of the time until the first warning, and half of the first call's timeout. The
/// answers then arrive before the warning and the error, which contain them.
Clock::duration GroupState::probe_after() const {
  Clock::duration after = kProbeAfter;
  const OperationList& calls =
      calls_.empty() ? carrier_ ? carrier_->messages() : messages_.pending() : calls_;
  if (calls.empty()) return after;
  if (warn_after_ != Clock::duration::zero()) after = std::min(after, warn_after_ / 2);
  const Operation& first = calls.front();
  if (first.deadline == Clock::time_point::max()) return after;
  return std::min(after, (first.deadline - first.submitted) / 2);
}

/// Cancels each timed-out receive for which no message has arrived. Any other point-to-point
/// operation that has timed out fails the group. Returns true if the group has failed.
bool GroupState::end_late_messages(Clock::time_point now) {
  while (Operation* const late = carrier_ ? find_late(now) : messages_.find_late(now)) {
    Failure failure{
        FailureKind::timeout,
        fmt::format("it timed out after {:.3g} s, ", seconds_between(late->submitted, now)),
        late->call, membership_.rank};
    failure.reason +=
        carrier_ ? "and no matching message was transferred" : why_late(*late, nullptr);
    std::shared_ptr<Operation> taken_back =
        carrier_ ? carrier_->cancel(*late) : messages_.cancel(*late);
    if (!taken_back && now < late->deadline) continue;
    if (!taken_back) {
      fail(std::move(failure));
      return true;
    }
    end_with(failure, std::move(taken_back));
  }
  return false;
}

/// Returns a message of the carrier that has missed its deadline; null if there is none.
Operation* GroupState::find_late(Clock::time_point now) const {
  for (Operation& message : carrier_->messages()) {
    if (now >= message.deadline) return &message;
  }
  return nullptr;
}

/// Returns the first pending collective. If there is none, returns the carrier's first pending
/// message, or null.
const Call* GroupState::first_call() const {
  if (!calls_.empty()) return &calls_.front().call;
  if (carrier_ && !carrier_->messages().empty()) return &carrier_->messages().front().call;
  return nullptr;
}

bool GroupState::fail_when_late(Clock::time_point now) {
  const auto late = std::find_if(calls_.begin(), calls_.end(), [now](const Operation& operation) {
    return now >= operation.deadline;
  });
  if (late == calls_.end()) return false;
  fail({FailureKind::timeout,
        fmt::format("it timed out after {:.3g} s{}", seconds_between(late->submitted, now),
                    stuck_on()),
        late->call, membership_.rank});
  return true;
}

/// Fails the group if a collective, or a receive that accepts any sender, makes no progress after a
/// member has died. A collective that still makes progress may complete with data that the dead
/// member sent.
bool GroupState::fail_without_the_dead(Clock::time_point now) {
  if (!dead_.valid()) return false;
  const Call* const first = first_call();
  const Operation* const any = carrier_ ? nullptr : messages_.posted_for_any();
  const Call* const call = first ? first : any ? &any->call : nullptr;
  if (!call) return false;
  const Clock::duration grace = fell_silent_ ? Clock::duration::zero() : kDeathGrace;
  if (now - std::max(lost_at_, collectives_moved_) < grace) return false;
  fail({FailureKind::peer, why_dead(), *call, membership_.rank});
  return true;
}

/// Returns the reason for a failure that was caused by the death of the member `dead_`.
std::string GroupState::why_dead() {
  return gone_text(dead_, channels_.at(transport::Purpose::collective, dead_).lost);
}

/// Fails the group if a member destroyed its group object before it made the current collective
/// call, because that member will never make it. Also fails the group if a message of the carrier
/// needs a member that has destroyed its group object.
bool GroupState::fail_without_the_gone() {
  const auto fail_without = [this](GroupRank member, const Call& call) {
    fail({FailureKind::peer, gone_text(member, endings_[member]->reason), call, membership_.rank});
    return true;
  };
  for (GroupRank member(0); member < endings_.end_rank() && !calls_.empty(); ++member) {
    const Call& call = calls_.front().call;
    const std::optional<Ending>& ending = endings_[member];
    if (!ending || ending->last >= call.sequence) continue;
    // Waits a moment, because the member may have left after a failure that another member is about
    // to announce.
    if (carrier_ && Clock::now() - ending->heard < kForTheLastMessages) continue;
    return fail_without(member, call);
  }
  if (!carrier_) {
    end_receives_from_any();
    return false;
  }
  for (const Operation& message : carrier_->messages()) {
    const GroupRank member = gone_of(message.call);
    if (member.valid()) return fail_without(member, message.call);
  }
  return false;
}

/// Ends the receives that match messages of any member, if no such message can arrive any more.
void GroupState::end_receives_from_any() {
  Operation* receive = messages_.posted_for_any();
  const GroupRank gone = receive ? last_gone() : GroupRank();
  if (!gone.valid()) return;
  const Failure failure{FailureKind::peer, gone_text(gone, endings_[gone]->reason)};
  for (; receive; receive = messages_.posted_for_any()) {
    std::shared_ptr<Operation> ended = messages_.cancel(*receive);
    if (!ended) return;
    end_with(failure, std::move(ended));
  }
}

/// If all other members have destroyed the group and all their messages were received, returns one
/// of these members. Otherwise returns an invalid rank.
GroupRank GroupState::last_gone() {
  GroupRank gone;
  for (GroupRank member(0); member < endings_.end_rank(); ++member) {
    if (member == membership_.rank) continue;
    if (!endings_[member] || channels_.at(transport::Purpose::point_to_point, member).connected())
      return {};
    gone = member;
  }
  return gone;
}

/// Returns a member that this message of the carrier needs and that has destroyed the group.
/// Returns an invalid rank while the message may still be transferred.
GroupRank GroupState::gone_of(const Call& message) const {
  GroupRank gone;
  for (GroupRank member(0); member < endings_.end_rank(); ++member) {
    if (member == membership_.rank || (message.peer >= 0 && message.peer != member.number()))
      continue;
    const std::optional<Ending>& ending = endings_[member];
    if (!ending || Clock::now() - ending->heard < kForTheLastMessages) return {};
    gone = member;
  }
  return gone;
}

/// Fails the group and returns true if its carrier's library can no longer be used in this process.
bool GroupState::fail_without_carrier() {
  if (!carrier_->is_over()) return false;
  fail(aborted("{}", carrier_->failure()));
  return true;
}

/// Asks each other member for its last call. A member that has destroyed the group answers that the
/// group is closed.
void GroupState::probe(Clock::time_point now) {
  next_probe_ = now + kProbeAfter;
  ControlMessage probe = about_group(ControlKind::probe);
  if (!calls_.empty()) probe.call = calls_.front().call;
  if (!carrier_ && std::exchange(probed_, probe.call.sequence) != probe.call.sequence)
    std::ranges::fill(reported_, std::nullopt);
  if (carrier_ && !calls_.empty()) probe.blob = digest_of(probe.call.sequence);
  membership_.for_each_other([&](WorldRank peer) { around_.peers.send(peer, probe); });
}

/// Returns a text for timeouts and warnings: ", waiting for rank 2 (which is in all_reduce #11)".
/// If `heart` is given, the text also marks members that are silent.
std::string GroupState::stuck_on(const Heartbeats* heart) const {
  std::string text;
  for (const GroupRank member : missing())
    text += (text.empty() ? ", waiting for " : ", ") + member_text(member, heart);
  return text;
}

std::string GroupState::member_text(GroupRank member, const Heartbeats* heart) const {
  std::string text = membership_.name_of(member);
  const std::optional<Reported>& reported = reported_[member];
  if (heart && heart->has_fallen_silent(membership_.members[member])) {
    text += " (which is silent: its process is stopped, or its host cannot be reached)";
  } else if (reported) {
    text += " (which " + doing(*reported);
    const GroupRank other = reported->waits_for;
    if (other.valid() && !(other == membership_.rank))
      text += fmt::format(", and {} {}",
                          reported->by_message ? "whose oldest pending message needs" : "waits for",
                          membership_.name_of(other));
    text += ")";
  }
  return text;
}

/// A carrier reports no progress of a collective until the collective ends, even if all is well. So
/// a warning about a carrier's collective is logged only if some member has not begun that
/// collective.
void GroupState::warn_of_waits(Clock::time_point now, const Heartbeats& heart) {
  if (failed() || warn_after_ == Clock::duration::zero()) return;
  const auto warn = [&](const Operation& call, const Wait& wait, const std::string& why) {
    around_.log.about(membership_.name)
        .warn("{} of group '{}' has made no progress for {:.3g} s{}", describe(call.call),
              membership_.name, seconds_between(wait.since, now), why);
  };
  if (!calls_.empty()) {
    const Operation& call = calls_.front();
    const bool is_due =
        collective_wait_.is_due(now, std::max(call.submitted, collectives_moved_), warn_after_);
    const std::string why = is_due ? stuck_on(&heart) : std::string();
    if (is_due && !(carrier_ && why.empty())) warn(call, collective_wait_, why);
  }
  const OperationList& messages = carrier_ ? carrier_->messages() : messages_.pending();
  if (messages.empty()) return;
  const Operation& oldest = messages.front();
  if (!message_wait_.is_due(now, std::max(oldest.submitted, last_progress_), warn_after_)) return;
  warn(oldest, message_wait_, carrier_ ? "" : ", " + why_late(oldest, &heart));
}

/// Returns a clause about a message that makes no progress, and about its peer if that peer is
/// silent or, according to an answer since the last progress, waits for another member. `heart` as
/// for stuck_on().
std::string GroupState::why_late(const Operation& message, const Heartbeats* heart) const {
  std::string why = messages_.why_late(message);
  const GroupRank peer(message.call.peer);
  if (!peer.valid()) return why;
  const std::optional<Reported>& reported = reported_[peer];
  if ((heart && heart->has_fallen_silent(membership_.members[peer])) ||
      (reported && reported->heard > last_progress_ && reported->waits_for.valid() &&
       !(reported->waits_for == membership_.rank)))
    why += "; this rank waits for " + member_text(peer, heart);
  return why;
}

void GroupState::note_waits(Clock::time_point now) {
  if (failed() || calls_.empty()) return;
  Operation& call = calls_.front();
  if (now - std::max(call.submitted, collectives_moved_) < kNoteWaitAfter) return;
  const std::int32_t before = call.flight.waits_for;
  note_missing(call);
  if (call.flight.waits_for == before) return;
  around_.completions.note(call, collective_runs() ? FlightEntry::running : FlightEntry::queued);
}

/// Stores the first rank of missing() in `call.flight.waits_for`. `call` must be the first
/// collective.
void GroupState::note_missing(Operation& call) noexcept {
  try {
    const std::vector<GroupRank> members = missing();
    call.flight.waits_for = members.empty() ? -1 : members.front().number();
  } catch (const std::bad_alloc&) {
    // There is no memory for the list of members, so `waits_for` stays unchanged.
  }
}

/// Returns the members that delay the current call. `members` are the ranks whose messages this
/// rank waits for. If the schedule is a chain, `members` contains only a neighbour, which may
/// itself wait for a late rank. So this function returns the members that have not made the call
/// according to the last probe, and those of `members` that have not answered the probe. If the
/// probe found no late member, returns `members`.
std::vector<GroupRank> GroupState::late_instead_of(std::vector<GroupRank> members) const {
  if (calls_.empty() || probed_ != calls_.front().call.sequence) return members;
  std::vector<GroupRank> late;
  for (GroupRank member(0); member < reported_.end_rank(); ++member) {
    if (reported_[member] && reported_[member]->last.sequence < probed_) late.push_back(member);
  }
  if (late.empty()) return members;
  for (const GroupRank member : members) {
    if (!reported_[member]) late.push_back(member);
  }
  std::sort(late.begin(), late.end());
  return late;
}

/// Returns the members that the current collective waits for. If the group has a carrier, these are
/// the members that, according to their answers to probes, have not reached this rank's last
/// collective.
std::vector<GroupRank> GroupState::missing() const {
  if (!carrier_) {
    const bool meets = !collective_runs() && window_.pending();
    return meets ? window_.missing_members() : late_instead_of(executor_.waiting_for());
  }
  std::vector<GroupRank> members;
  for (GroupRank member(0); member < reported_.end_rank(); ++member) {
    const std::uint64_t reached = reported_[member] ? reported_[member]->last.sequence : 0;
    if (member != membership_.rank && reached < history_.last().sequence) members.push_back(member);
  }
  return members;
}

void GroupState::release_idle(Clock::time_point now) {
  if (carrier_ && !failed() && !fail_without_carrier()) {
    const Call& last = history_.last();
    if (last.sequence > compared_) compare_with_next(last);
  }
  const std::uint64_t calls = sequence();
  if (!idle() || std::exchange(calls_when_idle_, calls) != calls) idle_since_ = now;
  if (idle_since_ == now || now - idle_since_ < kIdleAfter) return;
  release_plans();
}

void GroupState::watch_delivery(Clock::time_point now, const Heartbeats& heart) {
  if (failed()) return;
  std::optional<Failure> failure;
  channels_.for_each_lane([&](Lane& lane) {
    const bool heard = heart.hears(membership_.members[lane.peer()]);
    const Clock::duration lost = lane.lost_on_the_way(now, heard);
    if (lost >= heart.silence() / kSuspectedAfter) lane.link().suspect();
    if (lost < heart.silence() || failure) return;
    failure = Failure{
        FailureKind::peer,
        fmt::format(
            "rank {} is alive, but its host has acknowledged nothing sent over {} for {:.3g} s "
            "(MCCL_LIVENESS_INTERVAL); {} bytes are unacknowledged. Large packets may be lost in "
            "transit: set the same MTU on both hosts and on all devices between them",
            lane.peer(), lane.link().description(),
            std::chrono::duration<double>(heart.silence()).count(), lane.link().unsent())};
  });
  if (failure) fail(*std::move(failure));
}

}  // namespace mccl::engine
