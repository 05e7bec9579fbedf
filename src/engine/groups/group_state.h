// One group, as the engine has it: its links, its calls, and what becomes of them.
//
// Its parts: channels (the links), collectives and messages (the calls, each with its own
// executor), window (memory of the node); or a carrier in place of links and window. What is here
// says when they move, and how the group fails.
#pragma once

#include <poll.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/rank.h"
#include "engine/calls/failure.h"
#include "engine/calls/membership.h"
#include "engine/calls/operation.h"
#include "engine/collectives/collective_queue.h"
#include "engine/collectives/group_window.h"
#include "engine/groups/carrier.h"
#include "engine/groups/surroundings.h"
#include "engine/links/channel.h"
#include "engine/messages/messages.h"
#include "engine/peers/control.h"
#include "engine/peers/heart.h"
#include "mccl/compression.h"

namespace mccl::engine {

/// How long after the death of a member a call that does not move waits for what the member may
/// have sent to others. What it has to say itself has been heard by then.
inline constexpr std::chrono::milliseconds kDeathGrace{10};

/// Used under the engine's progress lock, but for what says otherwise.
class GroupState {
 public:
  /// `facts` of the group: its nodes are those of its members.
  /// `compression`: of sums that say nothing of it.
  GroupState(Membership membership, std::chrono::milliseconds timeout, schedule::Facts facts,
             const Compression& compression, Surroundings& surroundings);

  // From any thread:
  const Membership& membership() const { return membership_; }
  std::uint64_t id() const { return membership_.id; }
  std::chrono::milliseconds timeout() const { return timeout_; }  ///< Of calls that give none.
  const Compression& compression() const { return compression_; }
  /// Of a call, below which its sums are exact unless it says otherwise.
  std::size_t least_coded_bytes() const { return around_.config.compression_min_bytes; }
  /// The longest message.
  std::size_t chunk_bytes() const { return around_.config.chunk_bytes; }
  /// Nothing is made shorter between ranks that share memory.
  bool is_one_node() const { return nodes_ == 1; }
  /// A rank that shares memory with no other is one by itself.
  int node_count() const { return nodes_; }
  /// What was known when it was made, with a window as large as most are: alike on all ranks at all
  /// times.
  const schedule::Facts& assumed() const { return assumed_; }
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  /// Only when failed; constant from then on.
  const Failure& failure() const { return failure_; }
  /// The first reason wins; false for the later ones. What is pending ends in the engine's next
  /// pass.
  bool mark_failed(Failure failure) noexcept;
  /// `told` runs once, on whichever thread, as soon as the group has failed; it returns soon and
  /// throws nothing. Such a group fails with the first member that dies, also while no call is
  /// under way: what runs outside the engine would wait for that member. Before the first call.
  void watch_failure(std::function<void(const Failure&)> told);
  bool failure_is_watched() const;
  /// The number of the next collective.
  std::uint64_t next_sequence() { return sequence_.fetch_add(1, std::memory_order_relaxed) + 1; }

  bool listed = false;  ///< By Groups, among those that have calls.

  // group_calls.cpp: calls, and how they move.
  /// The call begins, or waits for those before it; or ends at once when the group has failed.
  void start(const std::shared_ptr<Operation>& operation);
  bool idle() const {
    return collectives_.empty() && messages_.idle() && (!carrier_ || carrier_->messages().empty());
  }
  /// Does what can be done now; false if that was nothing.
  bool advance(Clock::time_point now);
  void watch(Sleep& sleep);

  /// A collective that its caller runs: whether it can be, ...
  bool may_run_at_once(const Task& task) const;
  /// ... and has begun; false when it needs more than the window or the carrier.
  bool begin_at_once(Task& task);
  /// The other ranks have begun, or will: what goes wrong here they must hear of. Throws it.
  [[noreturn]] void fail_at_once(const Call& call, const std::exception& error);
  /// Looks once; true when it has finished. What goes wrong is met again by advance().
  bool advance_at_once();
  bool is_carried() const { return carrier_ != nullptr; }
  /// It goes on as any other call.
  void go_on_with(const std::shared_ptr<Operation>& operation);

  /// All members have ended their calls, and make the ones to come by carriers that belong
  /// together. Returns the links, which are not needed any more.
  DepartingLinks carry_by(std::unique_ptr<Carrier> carrier) noexcept;

  // group_failure.cpp: the end of it.
  /// Tells the other members, once, and ends everything pending.
  void fail(Failure failure) noexcept;
  /// The same when it has been marked.
  void settle_failure() noexcept;
  /// A member is lost. Collectives that do not get on without it end a moment later, whichever
  /// member they wait for (group_time.cpp): a member that is late would otherwise hide the loss. If
  /// it left in good order, only the messages that need it fail.
  void lose(WorldRank peer, const std::string& reason, transport::Loss loss);
  /// No more calls come, and those that are pending fail for `reason`; the other members are told
  /// the one that is `announced`, a clause about this rank. What the calls have sent still arrives,
  /// through the links that are returned; everything else is given back here and now: whoever still
  /// holds the group, or a Work of it, holds nothing of the engine's.
  DepartingLinks end(std::string_view reason, std::string_view announced) noexcept;

  // group_control.cpp: what the members tell each other.
  /// Throws CorruptionError for what no honest member says.
  void hear(WorldRank peer, const ControlMessage& message);
  Channels& channels() { return channels_; }
  const schedule::Facts& facts() const { return collectives_.facts(); }

  // group_time.cpp
  /// Ends calls whose time is over, and asks the others what they do when nothing moves.
  void watch_time(Clock::time_point now);
  /// Gives back what it keeps for its next call, if it has had none for a while.
  void release_idle(Clock::time_point now);
  /// Fails the group when its data is lost on the way to a member that `heart` hears all the same.
  /// At every beat.
  void watch_delivery(Clock::time_point now, const Heart& heart);

 private:
  bool advance_calls(Clock::time_point now);
  bool advance_collectives(Clock::time_point now);
  bool advance_messages();
  void finish_messages();
  bool confirm_suspicion();
  bool stay_awake(Clock::time_point now) const;
  void suspect(const std::exception& error);
  bool give_up_messages(const MemberGone& gone) noexcept;
  void ask_for_room(Clock::time_point now);
  void finish(std::shared_ptr<Operation> operation, std::exception_ptr error = nullptr) noexcept;
  Failure failure_in(const Call& call, const std::exception& error) const noexcept;
  void log_failure() const noexcept;
  void announce_failure() noexcept;
  void announce_end(std::string_view reason) noexcept;
  Call call_under_way() const;

  void offer_window();
  bool window_ready();
  void learn_window();
  void check_window(WorldRank peer, const WindowOffer& offer) const;
  void refuse_window(WorldRank peer, const WindowOffer& offer);
  void answer_probe(WorldRank peer, const ControlMessage& probe);
  void compare_at_marks(const Call& call) {
    if (CallHistory::is_mark(call)) compare_with_next(call);
  }
  void compare_with_next(const Call& call);
  transport::Blob digest_of(std::uint64_t sequence) const;
  void release_window() noexcept;

  bool end_late_messages(Clock::time_point now);
  bool fail_when_late(Clock::time_point now);
  bool fail_without_the_dead(Clock::time_point now);
  bool fail_without_the_gone();
  bool fail_without_carrier();
  void probe(Clock::time_point now);
  Clock::duration probe_after() const;
  std::vector<GroupRank> missing() const;
  std::string stuck_on() const;
  const Call* first_call() const;
  Operation* find_late(Clock::time_point now) const;
  GroupRank gone_of(const Call& message) const;
  void weigh();

  const Membership membership_;
  const std::chrono::milliseconds timeout_;
  const Compression compression_;
  const int nodes_;
  const schedule::Facts assumed_;
  Surroundings& around_;

  std::atomic<bool> failed_{false};
  mutable std::mutex failure_mutex_;
  Failure failure_;                                   // written once, under failure_mutex_
  std::function<void(const Failure&)> told_failure_;  // guarded by failure_mutex_
  std::atomic<std::uint64_t> sequence_{0};            // of the last collective submitted

  Channels channels_;
  GroupWindow window_;
  CollectiveQueue collectives_;
  Messages messages_;
  std::unique_ptr<Carrier> carrier_;  ///< Null where calls go over links.
  bool in_messages_ = false;          // of what advance_calls does
  bool failure_announced_ = false;
  /// A link broke: the peer may have died, or it closed the link because of a failure that it is
  /// about to announce. The announcement is waited for a moment, because it says more.
  std::optional<Failure> suspicion_;
  Clock::time_point suspected_at_;
  GroupRank dead_;  ///< The first member that died; not valid while all live or left in good order.
  Clock::time_point lost_at_;  ///< When that became known.
  bool fell_silent_ = false;   ///< It announces nothing any more, and nothing of it is on its way.
  /// What a member that has destroyed the group said of that.
  struct Ending {
    std::uint64_t last;  ///< The number of its last collective.
    std::string reason;
    Clock::time_point heard;
  };
  ByRank<GroupRank, std::optional<Ending>> endings_;
  Clock::time_point collectives_moved_;  ///< When a collective moved, or the first one was called.
  std::int64_t weight_ = 0;              // as staging knows it
  std::uint64_t calls_when_idle_ = 0;    // the last call, when that was looked at last
  std::uint64_t compared_ = 0;           // the last call that the next member was told of
  Clock::time_point idle_since_;
  Clock::time_point last_progress_;
  Clock::time_point next_probe_;
  ByRank<GroupRank, std::optional<Call>> statuses_;  // what members answered to the last probe
};

}  // namespace mccl::engine
