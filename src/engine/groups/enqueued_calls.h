// The collectives of one group that GPUs carry out without the host: this rank's last ones, and how
// far the other members have come.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/rank.h"
#include "engine/calls/call.h"
#include "engine/calls/call_history.h"
#include "transport/transport.h"

namespace mccl::engine {

/// The part of an announcement that is not the collective (ControlKind::enqueued).
struct Announcement {
  bool asks = false;         ///< True if the sender waits for an answer.
  bool stopped = false;      ///< See EnqueuedCalls::stop().
  std::uint64_t digest = 0;  ///< See CallHistory::digest_at().
};
transport::Blob encode(const Announcement& announcement);
/// Throws CorruptionError for bytes that encode() cannot have written.
Announcement decode_announcement(const transport::Blob& bytes);

/// Neither a GPU nor the engine can tell why such a collective does not end. So each member
/// announces its last collective to all others. A collective that a member has not enqueued cannot
/// have ended on any member. Collectives are numbered in the order in which they are enqueued, from
/// 1, separately from the group's other collectives. Thread-safe.
class EnqueuedCalls {
 public:
  EnqueuedCalls(std::size_t members, GroupRank self) : reached_(members), self_(self) {}

  /// Reserves memory for calls. Must be called before record().
  void reserve();
  /// Records this rank's next collective, which must be enqueued on all members by `deadline`.
  /// Returns it with its number. Allocates no memory.
  Call record(Call call, Clock::time_point now, Clock::time_point deadline);
  /// Called when a member captures a collective in a graph. Its replays are not counted, and
  /// another member may enqueue a counted collective meanwhile. So from now on, nothing is compared
  /// or missed.
  void stop();
  bool stopped() const;

  /// A collective as the members announce it.
  struct News {
    Call call;                 ///< Its number is 0 if the rank has enqueued no collective.
    std::uint64_t digest = 0;  ///< See CallHistory::digest_at().
  };
  /// Returns what the other members must learn: this rank's last collective and, before it, the
  /// last one of those that all members keep long enough to compare them (CallHistory::kMark).
  /// Returns nothing if all has been announced.
  std::vector<News> take_news();
  News last() const;

  /// A collective of this rank that another member's differs from.
  struct Difference {
    Call own;
    bool is_earlier;  ///< True if the two differ in a collective before this one.
  };
  /// Takes in the last collective of another member, or an earlier one.
  std::optional<Difference> hear(GroupRank member, const News& news, Clock::time_point now);

  /// A collective of this rank that some members have not announced.
  struct Missed {
    Call call;
    Clock::time_point since;     ///< Time at which this rank enqueued it, or a later time.
    Clock::time_point deadline;  ///< See record().
    std::vector<GroupRank> members;
  };
  /// Returns the first collective that some members have not announced. Returns nullopt if they
  /// have announced all of this rank's collectives. Not const, because it remembers the times of
  /// that collective, which record() may overwrite.
  std::optional<Missed> missed();
  /// Returns the members that have not announced the collective with this number. Returns nullopt
  /// if this is not known, because this rank has not announced it either.
  std::optional<std::vector<GroupRank>> late_for(std::uint64_t number) const;

  /// The last collective that a member has announced, and the time of its last message.
  struct Reached {
    Call last;
    Clock::time_point heard = {};
  };
  Reached reached(GroupRank member) const;

 private:
  static constexpr std::size_t kKept = 64;
  struct Times {
    Clock::time_point since;
    Clock::time_point deadline;
  };

  std::vector<GroupRank> members_before(std::uint64_t number) const;

  mutable std::mutex mutex_;              // guards the following members
  std::unique_ptr<CallHistory> history_;  // null before reserve()
  std::array<Times, kKept> times_{};      // indexed by the number modulo kKept
  ByRank<GroupRank, Reached> reached_;
  std::uint64_t last_ = 0;          // number of this rank's last collective
  std::uint64_t announced_ = 0;     // number of the last collective that was announced
  std::uint64_t first_missed_ = 0;  // number of the collective that missed() returned last
  Times times_of_missed_;           // times of the collective `first_missed_`
  bool stopped_ = false;
  bool stop_is_news_ = false;  // true if the others do not know of stop() yet
  const GroupRank self_;
};

}  // namespace mccl::engine
