// The part of GroupState that agrees with the other members on which of them are left.
#include <algorithm>
#include <utility>

#include "engine/groups/group_state.h"
#include "mccl/error.h"

namespace mccl::engine {
namespace {

transport::Blob encode(const Standings& standings) {
  transport::Blob bytes;
  for (const Standing each : standings) bytes.push_back(static_cast<std::byte>(each));
  return bytes;
}

Standings decode(const transport::Blob& bytes) {
  std::vector<Standing> standings;
  for (const std::byte each : bytes) {
    if (std::to_integer<int>(each) >= kStandingCount)
      throw CorruptionError("its vote on the members that are left is malformed");
    standings.push_back(static_cast<Standing>(each));
  }
  return Standings(std::move(standings));
}

}  // namespace

std::shared_ptr<SurvivorSearch> GroupState::find_survivors(
    const std::shared_ptr<CallDriver>& driver) {
  if (!search_) search_ = std::make_shared<SurvivorSearch>(driver, membership_.name);
  const std::shared_ptr<SurvivorSearch> search = search_;
  agreement_.enter();
  around_.peers.flush();
  end_search_if_decided();
  return search;
}

void GroupState::send_vote(GroupRank to, const Vote& vote) {
  ControlMessage message;
  message.kind = vote.decided ? ControlKind::agreed : ControlKind::survivors;
  message.key.group = id();
  message.call.sequence = vote.round;
  message.blob = encode(vote.standings);
  around_.peers.send(membership_.members[to], message);
}

void GroupState::hear_vote(GroupRank from, const ControlMessage& message) {
  agreement_.hear(from, {.round = message.call.sequence,
                         .decided = message.kind == ControlKind::agreed,
                         .standings = decode(message.blob)});
  end_search_if_decided();
}

void GroupState::note_absence(GroupRank member, Standing how) {
  agreement_.lose(member, how);
  end_search_if_decided();
}

void GroupState::end_search_if_decided() {
  if (search_ && agreement_.decision()) end_search(nullptr);
}

/// Runs no callbacks, because a SurvivorSearch never gets any.
void GroupState::end_search(const std::exception_ptr& error) noexcept {
  if (const auto ended = std::exchange(search_, nullptr)) (void)ended->finish(error);
}

}  // namespace mccl::engine
