// The collectives of one group that GPUs carry out without the host: this rank's last ones, and how
// far the other members have come.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/rank.h"
#include "engine/calls/call.h"

namespace mccl::engine {

/// Neither a GPU nor the engine can tell why such a collective does not end. So each member
/// announces its last collective to all others. A collective that a member has not enqueued cannot
/// have ended on any member. Collectives are numbered in the order in which they are enqueued, from
/// 1, separately from the group's other collectives. Those that a graph captures are not counted,
/// because a graph may be captured again on one member only. Thread-safe.
class EnqueuedCalls {
 public:
  EnqueuedCalls(std::size_t members, GroupRank self) : reached_(members), self_(self) {}

  /// Reserves memory for calls. Must be called before record().
  void reserve() { kept_.resize(kKept); }
  /// Records this rank's next collective, which must be enqueued on all members by `deadline`.
  /// Returns it with its number. Allocates no memory.
  Call record(Call call, Clock::time_point now, Clock::time_point deadline);

  /// True if this rank has recorded a collective since the last call of announce().
  bool has_news() const;
  /// Returns this rank's last collective, so that it can be sent to all other members. Its number
  /// is 0 if there is none.
  Call announce();
  /// Takes in the last collective of another member. Returns this rank's collective of the same
  /// number if the two differ, unless it is no longer kept.
  std::optional<Call> hear(GroupRank member, const Call& last);

  /// A collective of this rank that some members have not announced.
  struct Missed {
    Call call;
    Clock::time_point since;     ///< Time at which this rank enqueued it, or a later time.
    Clock::time_point deadline;  ///< See record().
    std::vector<GroupRank> members;
  };
  /// Returns the first collective that some members have not announced. Returns nullopt if they
  /// have announced all of this rank's collectives.
  std::optional<Missed> missed() const;
  /// Returns the members that have not announced the collective with this number. Returns no member
  /// if this rank has not announced it either, since the others then need not have answered.
  std::vector<GroupRank> late_for(std::uint64_t sequence) const;
  /// The last collective that a member has announced; its number is 0 if there is none.
  Call last_of(GroupRank member) const;

 private:
  static constexpr std::size_t kKept = 64;
  struct Kept {
    Call call;
    Clock::time_point since;
    Clock::time_point deadline;
  };

  std::vector<GroupRank> members_before(std::uint64_t sequence) const;

  mutable std::mutex mutex_;         // guards the following members
  std::vector<Kept> kept_;           // indexed by the number modulo kKept
  ByRank<GroupRank, Call> reached_;  // the last collective that each member has announced
  std::uint64_t last_ = 0;           // number of this rank's last collective
  std::uint64_t announced_ = 0;      // number of the last collective that was announced
  const GroupRank self_;
};

}  // namespace mccl::engine
