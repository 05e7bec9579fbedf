// The members of a group agree on which of them survive. They need no coordinator, and may die at
// any time. The class Agreement is one rank's side of this protocol, a state machine without I/O.
//
// Each member announces a vote: the states of all members, as far as it knows them. It merges the
// votes of other members into its own vote, and announces its vote again whenever a state has
// changed. A member decides once all members that it considers present have announced the same vote
// as its own. It then announces the decision. A member that receives a decision of the same round
// adopts the decision.
//
// Two members that consider each other present in their decisions never decide differently, for
// four reasons. The decision of each equals a vote of the other. In the votes of one member, states
// change only to later enumerators of Standing. A member that has decided does not vote again in
// that round. A member ignores the votes of members that it does not consider present. A member
// that the others exclude but that is still alive must not go on alone: see may_go_on().
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/rank.h"
#include "engine/calls/operation.h"
#include "transport/transport.h"

namespace mccl::engine {

/// The state of a member, as far as another member knows it. A state changes only to a later
/// enumerator.
enum class Standing : std::uint8_t {
  present,
  silent,  ///< Some member cannot reach this member, which may still be alive.
  ended,   ///< The member's process has ended, or the member has destroyed the group.
};
inline constexpr int kStandingCount = 3;

using Standings = ByRank<GroupRank, Standing>;

transport::Blob encode(const Standings& standings);
/// Throws CorruptionError for bytes that encode() cannot have written.
Standings decode_standings(const transport::Blob& bytes);

struct Vote {
  std::uint64_t round = 0;  ///< Number of the round, from 1.
  bool decided = false;
  Standings standings;
};

/// True if the members that are present may go on without the others. More than half of the members
/// that have not ended must be present. Exactly half of them suffices if the lowest rank that has
/// not ended is present. Silent members that are alive apply the same rule and then stop, so they
/// never go on as a second group.
bool may_go_on(const Standings& standings);

/// One member's side of the agreement. Used under the engine's progress lock.
class Agreement {
 public:
  /// A function that sends this rank's vote to a member.
  using Send = std::function<void(GroupRank to, const Vote& vote)>;
  Agreement(GroupRank self, std::size_t members, Send send);

  /// Enters the next round. No-op if this rank is in an undecided round.
  void enter();
  /// Number of rounds that this rank has entered.
  std::uint64_t round() const { return entered_; }
  /// The decision of the last round that this rank entered; null until it is known. If this rank is
  /// excluded, the members' states as far as it knows them.
  const Standings* decision() const;
  /// The members that this rank considers present and that have not announced the same vote as this
  /// rank in this round.
  std::vector<GroupRank> missing() const;

  /// Handles a member's vote. Throws CorruptionError for a vote that no correct member sends.
  void hear(GroupRank from, Vote vote);
  void lose(GroupRank member, Standing how);

 private:
  bool is_excluded() const { return known_[self_] != Standing::present; }
  bool agrees(GroupRank member) const;
  bool merge(const Standings& others);
  void announce(bool decided);
  void proceed(bool has_learned);
  void decide(Standings decision);

  const GroupRank self_;
  const Send send_;
  std::uint64_t entered_ = 0;
  Standings known_;
  ByRank<GroupRank, std::optional<Vote>> votes_;  ///< The last vote of each member.
  std::vector<Standings> decisions_;              ///< Indexed by round - 1.
};

/// The state behind a call of Group::shrink(). Completes once the members have agreed on the
/// survivors.
class SurvivorSearch final : public detail::WorkState {
 public:
  SurvivorSearch(std::shared_ptr<CallDriver> driver, std::string group)
      : driver_(std::move(driver)), group_(std::move(group)) {}
  std::string description() const override { return "shrink of group '" + group_ + "'"; }

 protected:
  void help(Clock::time_point deadline) override { driver_->help(*this, deadline); }

 private:
  const std::shared_ptr<CallDriver> driver_;
  const std::string group_;
};

}  // namespace mccl::engine
