#include "engine/groups/groups.h"

#include <fmt/format.h>

#include <utility>

#include "mccl/error.h"

namespace mccl::engine {

Groups::Groups(int ranks, Surroundings& surroundings)
    : around_(surroundings),
      unmade_(ranks),
      departing_(std::chrono::duration_cast<Clock::duration>(
                     std::chrono::duration<double>(surroundings.config.connect_timeout)),
                 surroundings.log) {}

void Groups::add(const std::shared_ptr<GroupState>& group) {
  unmade_.made(group->id());
  groups_[group->id()] = group;
  catch_up(*group);
}

void Groups::remove(const std::shared_ptr<GroupState>& group) noexcept {
  end(*group, "the group was destroyed while calls were pending", "it has destroyed this group");
  if (std::exchange(group->listed, false)) std::erase(active_, group);
  groups_.erase(group->id());
}

void Groups::end(GroupState& group, std::string_view reason, std::string_view announced) noexcept {
  unmade_.closed(group.id());
  departing_.add(group.end(reason, announced), Clock::now());
}

void Groups::end_all() noexcept {
  for (const auto& [id, group] : groups_) {
    end(*group, "this rank has shut down", "it has left the job");
  }
  groups_.clear();
  active_.clear();
}

GroupState* Groups::find(std::uint64_t id) const {
  const auto found = groups_.find(id);
  return found == groups_.end() ? nullptr : found->second.get();
}

void Groups::start(const std::shared_ptr<Operation>& operation) {
  active_.reserve(active_.size() + 1);  // so that activate() cannot fail later
  operation->group->start(operation);
  activate(operation->group);
}

void Groups::go_on_with(const std::shared_ptr<Operation>& operation) {
  active_.reserve(active_.size() + 1);
  operation->group->go_on_with(operation);
  activate(operation->group);
}

void Groups::activate(const std::shared_ptr<GroupState>& group) {
  if (!group->idle() && !std::exchange(group->listed, true)) active_.push_back(group);
}

bool Groups::advance(Clock::time_point now) {
  bool moved = false;
  for (std::size_t i = 0; i < active_.size();) {
    GroupState& group = *active_[i];
    moved |= group.advance(now);
    if (group.idle()) {
      group.listed = false;
      active_.erase(active_.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
  return moved;
}

void Groups::hear(WorldRank peer, const ControlMessage& message) {
  const auto found = groups_.find(message.key.group);
  if (found == groups_.end()) return hear_of_unmade(peer, message);
  const std::shared_ptr<GroupState> group = found->second;
  if (!group->membership().rank_of(peer).valid()) {
    throw CorruptionError(
        fmt::format("rank {} sent a message about group '{}', of which it is not a member", peer,
                    group->membership().name));
  }
  try {
    active_.reserve(active_.size() + 1);  // so that activate() cannot fail later
    group->hear(peer, message);
    activate(group);
  } catch (const CorruptionError&) {
    throw;
  } catch (const std::exception& error) {
    // The error occurred on this rank, so only the group fails. Neither rank may treat the other as
    // dead.
    group->fail(aborted("rank {} cannot continue: {}", group->membership().rank, error.what()));
  }
}

/// Handles a message about a group that this rank has not made yet, or has closed.
void Groups::hear_of_unmade(WorldRank peer, const ControlMessage& message) {
  const bool closed = unmade_.is_closed(message.key.group);
  switch (message.kind) {
    case ControlKind::link:
      return around_.links.refuse(peer, message);
    case ControlKind::open:
    case ControlKind::window:
    case ControlKind::abort:
    case ControlKind::probe:
    case ControlKind::ending:
    case ControlKind::survivors:
    case ControlKind::agreed:
      break;
    case ControlKind::enqueued:  // This rank has enqueued nothing.
      if (!closed && decode_announcement(message.blob).asks) {
        ControlMessage answer{.kind = ControlKind::enqueued, .key = message.key};
        answer.blob = encode(Announcement());
        around_.peers.send(peer, answer);
      }
      return;
    default:
      return;  // these kinds need no answer from a rank that has no such group
  }
  if (!closed) {
    if (message.kind != ControlKind::probe) unmade_.keep(peer, message);
    return;
  }
  if (message.kind == ControlKind::window) {
    if (const node::Neighbour* neighbour = around_.memory.neighbour(peer)) {
      neighbour->arena.let_go_of(decode_window_offer(message.blob).place);
    }
  }
  if (message.kind == ControlKind::abort || message.kind == ControlKind::ending ||
      message.kind == ControlKind::agreed)
    return;
  around_.peers.send(peer, {.kind = ControlKind::closed, .key = message.key});
}

/// Handles events that came before this rank made the group: losses of members, and messages about
/// the group.
void Groups::catch_up(GroupState& group) {
  group.membership().for_each_other([&](WorldRank peer) {
    const std::string& lost = around_.peers.lost(peer);
    if (!lost.empty()) group.lose(peer, lost, transport::Loss::reported);
  });
  for (const auto& [peer, message] : unmade_.take(group.id())) {
    try {
      hear(peer, message);
    } catch (const CorruptionError& garbage) {
      group.fail({FailureKind::corruption, fmt::format("rank {}: {}", peer, garbage.what())});
    }
  }
}

void Groups::lose(WorldRank peer, const std::string& reason, transport::Loss loss) {
  departing_.lose(peer, loss);
  for (const auto& [id, group] : groups_) group->lose(peer, reason, loss);
}

void Groups::fail_without(WorldRank peer, const std::string& reason, bool only_watched) {
  for (const auto& [id, group] : groups_) {
    const GroupRank member = group->membership().rank_of(peer);
    if (!member.valid() || (only_watched && !group->failure_is_watched())) continue;
    group->fail({FailureKind::peer, gone_text(member, reason)});
  }
}

void Groups::lose_link(WorldRank peer, std::uint64_t id, const std::string& reason) {
  GroupState* const group = find(id);
  // If the peer is gone, it needs no data, and its loss already ends the calls that wait for it.
  if (!group || !around_.peers.lost(peer).empty()) return;
  const Membership& membership = group->membership();
  const GroupRank gone = membership.rank_of(peer);
  Failure failure{FailureKind::peer, gone_text(gone, "the link to it broke: " + reason)};
  failure.seen_by = membership.rank;
  group->fail(failure);
}

void Groups::fail_all(const Failure& failure) noexcept {
  for (const auto& [id, group] : groups_) {
    Failure own = aborted("rank {} cannot continue: {}", group->membership().rank, failure.reason);
    own.kind = failure.kind;
    group->fail(std::move(own));
  }
}

}  // namespace mccl::engine
