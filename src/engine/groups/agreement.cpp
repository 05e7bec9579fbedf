#include "engine/groups/agreement.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "mccl/error.h"

namespace mccl::engine {

bool may_go_on(const Standings& standings) {
  const auto present = std::ranges::count(standings, Standing::present);
  const auto silent = std::ranges::count(standings, Standing::silent);
  if (present != silent) return present > silent;
  const auto lowest =
      std::ranges::find_if(standings, [](Standing each) { return each != Standing::ended; });
  return lowest != standings.end() && *lowest == Standing::present;
}

transport::Blob encode(const Standings& standings) {
  transport::Blob bytes;
  for (const Standing each : standings) bytes.push_back(static_cast<std::byte>(each));
  return bytes;
}

Standings decode_standings(const transport::Blob& bytes) {
  std::vector<Standing> standings;
  for (const std::byte each : bytes) {
    if (std::to_integer<int>(each) >= kStandingCount)
      throw CorruptionError("its vote on the surviving members is malformed");
    standings.push_back(static_cast<Standing>(each));
  }
  return Standings(std::move(standings));
}

Agreement::Agreement(GroupRank self, std::size_t members, Send send)
    : self_(self), send_(std::move(send)), known_(members), votes_(members) {}

void Agreement::enter() {
  if (entered_ > decisions_.size()) return;
  ++entered_;
  proceed(true);
}

const Standings* Agreement::decision() const {
  if (is_excluded()) return &known_;
  return entered_ == 0 || entered_ > decisions_.size() ? nullptr : &decisions_[entered_ - 1];
}

std::vector<GroupRank> Agreement::missing() const {
  std::vector<GroupRank> members;
  for (GroupRank member(0); member < known_.end_rank(); ++member) {
    if (!agrees(member)) members.push_back(member);
  }
  return members;
}

void Agreement::hear(GroupRank from, Vote vote) {
  if (vote.round == 0 || vote.round > decisions_.size() + 1 ||
      vote.standings.size() != known_.size()) {
    throw CorruptionError(
        fmt::format("its vote on the surviving members covers {} members in round {}, but the "
                    "group has {} members and is in "
                    "round {}",
                    vote.standings.size(), vote.round, known_.size(), decisions_.size() + 1));
  }
  if (vote.decided && vote.round > entered_ && vote.standings[self_] == Standing::present) {
    throw CorruptionError(
        fmt::format("it decided round {} on the surviving members together with this rank, which "
                    "has entered {} rounds",
                    vote.round, entered_));
  }
  // The other members must not adopt the decisions of an excluded rank, which may not know yet that
  // it is excluded.
  const GroupRank excluded = is_excluded() ? self_ : from;
  if (excluded == self_) merge(vote.standings);
  if (known_[excluded] != Standing::present) {
    const bool knows =
        vote.standings[excluded] != Standing::present || vote.standings[self_] != Standing::present;
    if (!vote.decided && !knows) send_(from, {vote.round, false, known_});
    return;
  }
  if (vote.round <= decisions_.size()) {
    if (!vote.decided) send_(from, {vote.round, true, decisions_[vote.round - 1]});
    return;
  }
  if (vote.decided) return decide(std::move(vote.standings));
  const bool has_learned = merge(vote.standings);
  votes_[from] = std::move(vote);
  proceed(has_learned);
}

void Agreement::lose(GroupRank member, Standing how) {
  if (known_[member] >= how) return;
  known_[member] = how;
  proceed(true);
}

/// True if this rank need not wait for a vote of the member.
bool Agreement::agrees(GroupRank member) const {
  if (member == self_ || known_[member] != Standing::present) return true;
  const std::optional<Vote>& vote = votes_[member];
  return vote && vote->round == entered_ && std::ranges::equal(vote->standings, known_);
}

/// Merges the states that another member has announced into known_. Returns true if known_ changed.
bool Agreement::merge(const Standings& others) {
  bool has_learned = false;
  for (GroupRank member(0); member < known_.end_rank(); ++member) {
    if (others[member] <= known_[member]) continue;
    known_[member] = others[member];
    has_learned = true;
  }
  return has_learned;
}

void Agreement::announce(bool decided) {
  const Vote vote{entered_, decided, decided ? decisions_.back() : known_};
  for (GroupRank member(0); member < known_.end_rank(); ++member) {
    if (member != self_) send_(member, vote);
  }
}

void Agreement::proceed(bool has_learned) {
  if (entered_ <= decisions_.size()) return;
  if (has_learned) announce(false);
  if (!is_excluded() && missing().empty()) decide(known_);
}

/// Announces the decision even if another member made it, because that member may have died before
/// all other members received the decision.
void Agreement::decide(Standings decision) {
  merge(decision);
  if (is_excluded()) return;
  decisions_.push_back(std::move(decision));
  if (decisions_.size() == entered_) announce(true);
}

}  // namespace mccl::engine
