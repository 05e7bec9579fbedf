// The part of GroupState that exchanges control messages with the other members.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "engine/groups/group_state.h"
#include "mccl/error.h"

namespace mccl::engine {
namespace {

/// Returns the announced failure, attributed to the rank that detected it. That rank need not be
/// the sender: if ranks are joined by cables, members forward announcements.
Failure announced(const ControlMessage& message, GroupRank end_rank) {
  Failure failure = message.failure;
  if (failure.seen_by.valid() && !(failure.seen_by < end_rank)) {
    throw CorruptionError(
        fmt::format("it reports a failure detected by rank {}, but the group has {} ranks",
                    failure.seen_by, end_rank));
  }
  if (!is_collective(message.call) || message.call.sequence != 0) failure.call = message.call;
  return failure;
}

}  // namespace

void GroupState::hear(WorldRank peer, const ControlMessage& message) {
  const GroupRank member = membership_.rank_of(peer);
  switch (message.kind) {
    case ControlKind::abort: {
      Failure failure = announced(message, membership_.members.end_rank());
      // The peer has sent the announcement to all members, so this rank need not repeat it. But if
      // ranks are joined by cables, the peer's relay to some members may be dead. Along cables,
      // every member therefore forwards the announcement before its own links end.
      failure_announced_ |= !around_.along_cables;
      failure_heard_ |= !failed();
      return fail(std::move(failure));
    }
    case ControlKind::probe:
      return answer_probe(peer, message);
    case ControlKind::status:
      return hear_status(member, message);
    case ControlKind::window: {
      const WindowOffer offer = decode_window_offer(message.blob);
      check_window(peer, offer);
      if (!window_.take(member, offer)) refuse_window(peer, offer);
      return;
    }
    case ControlKind::ending:
      endings_[member] = {message.call.sequence, message.failure.reason, Clock::now()};
      if (message.key.purpose == transport::Purpose::point_to_point) messages_.drain(member);
      return note_absence(member, Standing::ended);
    case ControlKind::blocked:
      return messages_.take_in(member, message.call.sequence);
    case ControlKind::survivors:
    case ControlKind::agreed:
      return hear_vote(member, message);
    case ControlKind::enqueued:
      return hear_enqueued(peer, message);
    case ControlKind::closed:
      note_absence(member, Standing::ended);
      [[fallthrough]];
    default:
      return around_.links.hear(peer, channels_, message);
  }
}

/// Checks a member's window offer while its message is handled, so that an invalid offer counts as
/// an error of the peer.
void GroupState::check_window(WorldRank peer, const WindowOffer& offer) const {
  const node::Neighbour* neighbour = around_.memory.neighbour(peer);
  if (neighbour && offer.place.bytes != 0) neighbour->arena.check(offer.place);
}

/// Releases this rank's claim on an offered window that it will not map. The peer counts this rank
/// as a reader of its window, and reclaims the memory only after all readers have released it.
void GroupState::refuse_window(WorldRank peer, const WindowOffer& offer) {
  if (const node::Neighbour* neighbour = around_.memory.neighbour(peer)) {
    neighbour->arena.let_go_of(offer.place);
  }
}

/// Answers a probe. A peer sends a probe if its call makes no progress, or to compare its calls
/// with this rank's. Fails the group if this rank made a different call with the probe's sequence
/// number or, with a carrier, with an earlier one. Otherwise reports this rank's last call.
void GroupState::answer_probe(WorldRank peer, const ControlMessage& probe) {
  const Call& call = probe.call;
  const std::optional<Call> mine = history_.find(call.sequence);
  if (mine && !mine->matches(call)) {
    const std::string theirs =
        fmt::format("{} calls {}", membership_.name_of(membership_.rank_of(peer)),
                    describe_unlike(call, *mine));
    if (!calls_.empty() && calls_.front().call.sequence == call.sequence) {
      return fail({FailureKind::mismatch, theirs + instead_of(*mine), *mine, membership_.rank});
    }
    return fail({FailureKind::mismatch, fmt::format("{}, but rank {} called {}", theirs,
                                                    membership_.rank, describe(*mine))});
  }
  if (mine && carrier_ && !probe.blob.empty() && probe.blob != digest_of(call.sequence)) {
    return fail({FailureKind::mismatch,
                 fmt::format("{} made a different call than rank {} at some point before {}",
                             membership_.name_of(membership_.rank_of(peer)), membership_.rank,
                             describe(*mine))});
  }
  ControlMessage answer = about_group(ControlKind::status);
  answer.call = history_.last();
  answer.blob = own_wait();
  around_.peers.send(peer, answer);
}

/// Returns two bytes and a rank: whether this rank's last collective has not ended, what needs
/// another member (0: nothing, 1: that collective, 2: the oldest pending message), and that member.
transport::Blob GroupState::own_wait() const {
  GroupRank other;
  if (!calls_.empty()) {
    const std::vector<GroupRank> members = missing();
    if (!members.empty()) other = members.front();
  } else if (!carrier_ && !messages_.pending().empty()) {
    other = GroupRank(messages_.pending().front().call.peer);
  }
  const std::uint32_t number = static_cast<std::uint32_t>(std::max(other.number(), 0));
  transport::Blob bytes(2 + sizeof number);
  bytes[0] = std::byte{collective_runs()};
  bytes[1] = static_cast<std::byte>(!other.valid() ? 0 : calls_.empty() ? 2 : 1);
  std::memcpy(&bytes[2], &number, sizeof number);
  return bytes;
}

void GroupState::hear_status(GroupRank member, const ControlMessage& status) {
  std::uint32_t number = 0;
  if (status.blob.size() != 2 + sizeof number || status.blob[1] > std::byte{2})
    throw CorruptionError("its status is malformed");
  std::memcpy(&number, &status.blob[2], sizeof number);
  if (number >= membership_.members.size())
    throw CorruptionError(fmt::format("it waits for rank {}, but the group has {} ranks", number,
                                      membership_.size()));
  const bool waits = status.blob[1] != std::byte{0};
  reported_[member] = {.last = status.call,
                       .is_in_it = status.blob[0] != std::byte{0},
                       .waits_for = waits ? GroupRank(static_cast<int>(number)) : GroupRank(),
                       .by_message = status.blob[1] == std::byte{2},
                       .heard = Clock::now()};
}

/// Returns the digest of all calls up to and including the one with this sequence number, as the
/// blob of a probe.
transport::Blob GroupState::digest_of(std::uint64_t sequence) const {
  const std::uint64_t digest = history_.digest_at(sequence);
  const auto bytes = std::as_bytes(std::span(&digest, 1));
  return {bytes.begin(), bytes.end()};
}

/// Sends `call`, and the digest of this rank's calls up to it, to the member with the next rank,
/// which compares both with its own calls. A carrier itself does not compare calls, and may move
/// data between calls that differ. Called at every heartbeat and every CallHistory::kMark calls.
void GroupState::compare_with_next(const Call& call) {
  compared_ = call.sequence;
  const GroupRank next((membership_.rank.number() + 1) % membership_.size());
  ControlMessage message = about_group(ControlKind::probe);
  message.call = call;
  message.blob = digest_of(call.sequence);
  around_.peers.send(membership_.members[next], message);
}

GroupWindow::Find GroupState::neighbours() const {
  return [this](GroupRank member) -> const node::Neighbour& {
    return *around_.memory.neighbour(membership_.members[member]);
  };
}

void GroupState::offer_window() {
  ControlMessage message = about_group(ControlKind::window);
  message.blob = encode(window_.offer(around_.memory.arena, neighbours(), around_.reads_processes));
  around_.staging.touch();
  membership_.for_each_other([&](WorldRank peer) { around_.peers.send(peer, message); });
  around_.peers.flush();
}

/// Returns true if the size of the window is known, so that collectives can be planned. Otherwise
/// makes this rank's offer, if it has not done so, and returns false until all offers have arrived.
bool GroupState::window_ready() {
  if (window_.settled()) return true;
  if (!window_.offered()) offer_window();
  if (window_.pending()) {
    for (const GroupRank member : window_.missing_members()) {
      const std::string& lost = channels_.at(transport::Purpose::collective, member).lost;
      if (!lost.empty()) throw PeerError(gone_text(member, lost));
    }
    around_.look_beside_soon();
    return false;
  }
  learn_window();
  return true;
}

void GroupState::learn_window() {
  window_.settle(neighbours());
  schedule::Facts facts = plans_.facts();
  facts.window_bytes = window_.call_bytes();
  if (facts.window_bytes == 0) {
    around_.log.about(membership_.name)
        .warn(
            "the ranks of group '{}' on one host send messages to each other instead of reading "
            "each other's memory, because one of them has no memory left to share; free memory, or "
            "raise the memory limit of its container",
            membership_.name);
    facts.nodes.clear();
  }
  plans_.learn(std::move(facts));
  weigh();
}

std::shared_ptr<SurvivorSearch> GroupState::find_survivors(
    const std::shared_ptr<CallDriver>& driver) {
  if (!search_) search_ = std::make_shared<SurvivorSearch>(driver, membership_.name);
  std::shared_ptr<SurvivorSearch> search = search_;
  agreement_.enter();
  around_.peers.flush();
  end_search_if_decided();
  return search;
}

void GroupState::send_vote(GroupRank to, const Vote& vote) {
  ControlMessage message = about_group(vote.decided ? ControlKind::agreed : ControlKind::survivors);
  message.call.sequence = vote.round;
  message.blob = encode(vote.standings);
  around_.peers.send(membership_.members[to], message);
}

void GroupState::hear_vote(GroupRank from, const ControlMessage& message) {
  agreement_.hear(from, {.round = message.call.sequence,
                         .decided = message.kind == ControlKind::agreed,
                         .standings = decode_standings(message.blob)});
  end_search_if_decided();
}

void GroupState::note_absence(GroupRank member, Standing how) {
  agreement_.lose(member, how);
  end_search_if_decided();
}

void GroupState::end_search_if_decided() {
  if (search_ && agreement_.decision()) end_search(nullptr);
}

/// No callbacks are run here, because a SurvivorSearch never has callbacks.
void GroupState::end_search(const std::exception_ptr& error) noexcept {
  if (const auto ended = std::exchange(search_, nullptr)) (void)ended->finish(error);
}

}  // namespace mccl::engine
