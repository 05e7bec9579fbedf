// The engine's state of one group: its links, its calls and its failure.
//
// A group has channels (its links), collectives with their plans and executor, messages, and a
// window (memory that ranks of one node share). A carrier, which runs calls through another library
// such as MPI, may replace the links and the window. GroupState decides when calls make progress
// and how the group fails.
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
#include "engine/calls/call_history.h"
#include "engine/calls/carrier.h"
#include "engine/calls/failure.h"
#include "engine/calls/membership.h"
#include "engine/calls/operation.h"
#include "engine/collectives/executor.h"
#include "engine/collectives/group_window.h"
#include "engine/groups/agreement.h"
#include "engine/groups/enqueued_calls.h"
#include "engine/groups/surroundings.h"
#include "engine/groups/wait.h"
#include "engine/links/channel.h"
#include "engine/messages/messages.h"
#include "engine/peers/control.h"
#include "engine/peers/heartbeats.h"
#include "mccl/call_site.h"
#include "mccl/compression.h"

namespace mccl::engine {

/// If a member has died and a call makes no progress for this time, the group fails. During this
/// time, data that the member has sent to other ranks may still let the call proceed, and
/// announcements that the member sent before it died are handled.
inline constexpr std::chrono::milliseconds kDeathGrace{10};

/// One group on this rank. Used under the engine's progress lock, except where a comment says
/// otherwise.
class GroupState {
 public:
  /// `facts` contains the nodes of the members. `compression` applies to sums whose call sets no
  /// compression.
  GroupState(Membership membership, std::chrono::milliseconds timeout, schedule::Facts facts,
             const Compression& compression, Surroundings& surroundings);

  // The functions down to next_sequence() may be called from any thread:
  const Membership& membership() const { return membership_; }
  std::uint64_t id() const { return membership_.id; }
  std::chrono::milliseconds timeout() const { return timeout_; }  ///< Default timeout of calls.
  const Compression& compression() const { return compression_; }
  /// Minimum size, in bytes, of sums that are compressed by default. Smaller sums are exact unless
  /// their call sets a codec.
  std::size_t least_coded_bytes() const { return around_.config.compression_min_bytes; }
  /// Maximum payload of a message, in bytes.
  std::size_t chunk_bytes() const { return around_.config.chunk_bytes; }
  /// True if all members share memory. Sums are then never compressed.
  bool is_one_node() const { return nodes_ == 1; }
  /// Number of nodes of the members. A rank that shares memory with no other rank counts as one
  /// node.
  int node_count() const { return nodes_; }
  /// The costs of links and memory that were known when the group was made, for a window of the
  /// usual size. Constant, and equal on all members.
  const schedule::Facts& assumed() const { return assumed_; }
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  /// Valid once failed() returns true; constant from then on.
  const Failure& failure() const { return failure_; }
  /// Marks the group failed. Does nothing and returns false if the group has already failed.
  /// Pending calls end in the driver's next pass (Driven::pass()).
  bool mark_failed(Failure failure) noexcept;
  /// Registers a callback that runs once, on any thread, when the group fails. The callback must
  /// return soon and not throw. A group with a callback fails as soon as a member dies, even while
  /// no call is pending, because work outside the engine may wait for that member. Must be called
  /// before the group's first call.
  void watch_failure(std::function<void(const Failure&)> on_failure);
  bool failure_is_watched() const;
  /// Number of collectives submitted so far.
  std::uint64_t sequence() const { return sequence_.load(std::memory_order_relaxed); }
  /// Assigns and returns the sequence number of the next collective.
  std::uint64_t next_sequence() { return sequence_.fetch_add(1, std::memory_order_relaxed) + 1; }

  bool listed = false;  ///< True if Groups lists this group among the groups with calls.

  // Defined in group_calls.cpp: calls, and how they make progress.

  /// Starts the call, or queues it behind earlier calls. Ends it immediately if the group has
  /// failed.
  void start(const std::shared_ptr<Operation>& operation);
  bool idle() const {
    return calls_.empty() && messages_.idle() && (!carrier_ || carrier_->messages().empty());
  }
  /// True if the only calls are messages whose callers have promised to wait for them, so that no
  /// other thread needs to drive.
  bool attended() const {
    return calls_.empty() && !carrier_ && !failed() && !suspicion_ && messages_.attended();
  }
  /// Does all work that is possible now. Returns false if no call made progress and the driver may
  /// sleep.
  bool advance(Clock::time_point now);
  void watch(Sleep& sleep);

  /// True if the caller may try to run this call on its own thread.
  bool may_run_at_once(const Task& task) const;
  /// Begins a call for which may_run_at_once() returned true. Returns `no` and does nothing for a
  /// collective whose schedule is not `in_order`, and for a message that Messages cannot transfer
  /// at once.
  AtOnce begin_at_once(Task& task);
  /// Fails the group and throws. The other ranks have begun this call or will begin it, so they
  /// must learn of the error.
  [[noreturn]] void fail_at_once(const Task& task, const std::exception& error);
  /// Advances the collective or receive that begin_at_once() began. Throws errors without failing
  /// the group.
  AtOnce advance_at_once(Task& task);
  bool is_carried() const { return carrier_ != nullptr; }
  /// True if the send may have made a transport need the driver at an earlier time.
  bool sets_deadlines(const Task& send) const {
    return messages_.sets_deadlines(GroupRank(send.call.peer));
  }
  /// Returns a finished receive whose Work reports `source` as the sender. All receives from
  /// `source` that run on their caller's thread share this operation.
  std::shared_ptr<Operation> received_from(GroupRank source);
  /// Queues a call that has begun on its caller's thread, so that the driver continues it.
  void go_on_with(const std::shared_ptr<Operation>& operation);

  /// Makes `carrier` carry out all later calls. All members must have ended their calls and made
  /// matching carriers. Returns the group's links, which are no longer needed.
  DepartingLinks carry_by(std::unique_ptr<Carrier> carrier) noexcept;

  // Defined in group_failure.cpp: how the group ends.

  /// Announces the failure to the other members, once, and ends all pending calls.
  void fail(Failure failure) noexcept;
  /// Does the same as fail(), for a group that mark_failed() has already marked.
  void settle_failure() noexcept;
  /// Handles the loss of a member. A collective that then makes no progress fails soon
  /// (fail_without_the_dead() in group_time.cpp), even if it waits for another member; otherwise a
  /// slow member would hide the loss. If the lost member left in good order, only messages that
  /// need it fail.
  void lose(WorldRank peer, const std::string& reason, transport::Loss loss);
  /// Ends the group. Pending calls fail for `reason`. The other members receive `announced`, a
  /// clause about this rank. Returns the links, because sent data may still be in flight.
  /// Everything else is released now: an object that still refers to the group, such as a Work,
  /// keeps no resources of the engine alive.
  DepartingLinks end(std::string_view reason, std::string_view announced) noexcept;

  // Defined in group_control.cpp: control messages between the members.

  /// Handles a control message about the group. Throws CorruptionError for a message that no
  /// correct member sends.
  void hear(WorldRank peer, const ControlMessage& message);
  Channels& channels() { return channels_; }

  // Defined in group_control.cpp: the agreement on which members survive.

  /// Joins the agreement on the surviving members that is in progress, or starts the next one. The
  /// returned object completes once the members have agreed.
  std::shared_ptr<SurvivorSearch> find_survivors(const std::shared_ptr<CallDriver>& driver);
  const Agreement& agreement() const { return agreement_; }
  const schedule::Facts& facts() const { return plans_.facts(); }

  // Defined in group_enqueued.cpp: collectives that GPUs carry out without the host.

  /// Thread-safe.
  EnqueuedCalls& enqueued() { return enqueued_; }
  /// Adds such a collective to the flight recorder.
  void record_enqueued(const Request& request, std::string_view algorithm) noexcept;
  /// Announces this rank's last collective on its GPU, if the members do not know it yet, and warns
  /// of members that are late. Fails the group after the call's timeout, or if a member has
  /// destroyed the group without the call. Called at every heartbeat.
  void watch_enqueued(Clock::time_point now, const Heartbeats& heart);
  /// Returns a clause that says why the collective with this number has not ended, such as ",
  /// waiting for rank 2 (whose last collective on GPU memory is ...)". May be called from any
  /// thread.
  std::string why_unfinished(std::uint64_t number) const;

  // Defined in group_time.cpp:

  /// Ends calls whose deadline has passed. If no call makes progress, asks the other members for
  /// their last calls.
  void watch_time(Clock::time_point now);
  /// Releases memory kept for later calls if the group has made no call for some seconds. If the
  /// group has a carrier, also sends the last call to the next member, which compares that call
  /// with its own. Called at every heartbeat.
  void release_idle(Clock::time_point now);
  /// Fails the group if a member has acknowledged none of its data for the time heart.silence(),
  /// but other messages from that member still arrive. Called at every heartbeat.
  void watch_delivery(Clock::time_point now, const Heartbeats& heart);
  /// Logs a warning when the first collective or the oldest message has made no progress for
  /// MCCL_WARN_AFTER, and again whenever that time has doubled.
  void warn_of_waits(Clock::time_point now, const Heartbeats& heart);
  /// If the first collective makes no progress, records in the flight recorder a member that this
  /// collective waits for.
  void note_waits(Clock::time_point now);

  /// Data about the group's calls for `mccl status`.
  struct Status {
    struct Pending {
      Call call;
      bool has_started = false;
      double waited_s = 0;  ///< Seconds since the call last made progress.
      std::vector<GroupRank> waits_for = {};
      std::string why = {};  ///< A clause about the wait; may be empty.
    };
    /// The first pending collective, the oldest pending message, and the first collective on GPU
    /// memory that some members have not enqueued.
    std::vector<Pending> pending = {};
    std::size_t more_pending = 0;  ///< Number of other pending calls.
    Call last = {};                ///< The last collective; its sequence is 0 if none started.
    std::string failure = {};      ///< Why the group failed; empty if it has not failed.
  };
  Status status(Clock::time_point now, const Heartbeats& heart) const;

 private:
  ControlMessage about_group(ControlKind kind) const {
    return {.kind = kind, .key = {.group = membership_.id}};
  }
  bool advance_calls(Clock::time_point now);
  bool advance_messages();
  void finish_messages();
  bool confirm_suspicion();
  void blame_the_dead(Failure& failure) noexcept;
  bool stay_awake(Clock::time_point now) const;
  void suspect(const std::exception& error);
  bool give_up_messages(const MemberGone& gone) noexcept;
  void ask_for_room(Clock::time_point now);
  void finish(std::shared_ptr<Operation> operation, std::exception_ptr error = nullptr) noexcept;
  void end_with(const Failure& failure, std::shared_ptr<Operation> operation,
                std::string_view verdict = "failed") noexcept;
  Failure failure_in(const Call& call, const std::exception& error) const noexcept;
  void log_failure() const noexcept;
  void announce_failure() noexcept;
  void announce_end(std::string_view reason) noexcept;
  Call call_under_way() const;

  // Defined in group_collectives.cpp:
  bool advance_collectives(Clock::time_point now);
  void begin_first();
  void begin_carried(Task& task);
  void begin_planned(Task& task, const Plan& plan);
  bool collective_runs() const { return carried_ != Carried::no || executor_.running(); }
  bool advance_collective();
  bool collective_has_finished() const {
    return carried_ == Carried::ended || executor_.finished();
  }
  void end_collective();
  const Plan& plan_for(const Request& request);
  void record_algorithm(const Task& task, const Plan& plan);
  void release_plans();

  GroupWindow::Find neighbours() const;
  void offer_window();
  bool window_ready();
  void learn_window();
  void check_window(WorldRank peer, const WindowOffer& offer) const;
  void refuse_window(WorldRank peer, const WindowOffer& offer);
  void answer_probe(WorldRank peer, const ControlMessage& probe);
  ControlMessage about_enqueued(const EnqueuedCalls::News& news, bool asks) const;
  void announce_enqueued() noexcept;
  void hear_enqueued(WorldRank peer, const ControlMessage& message);
  std::string late_text(const std::vector<GroupRank>& members,
                        const Heartbeats* heart = nullptr) const;
  void compare_with_next(const Call& call);
  transport::Blob digest_of(std::uint64_t sequence) const;
  transport::Blob own_wait() const;
  void hear_status(GroupRank member, const ControlMessage& status);
  void release_window() noexcept;

  void send_vote(GroupRank to, const Vote& vote);
  void hear_vote(GroupRank from, const ControlMessage& message);
  void note_absence(GroupRank member, Standing how);
  void end_search_if_decided();
  void end_search(const std::exception_ptr& error) noexcept;

  bool end_late_messages(Clock::time_point now);
  bool fail_when_late(Clock::time_point now);
  bool fail_without_the_dead(Clock::time_point now);
  std::string why_dead();
  bool fail_without_the_gone();
  bool fail_without_carrier();
  void probe(Clock::time_point now);
  Clock::duration probe_after() const;
  std::vector<GroupRank> missing() const;
  std::vector<GroupRank> late_instead_of(std::vector<GroupRank> members) const;
  void note_missing(Operation& call) noexcept;
  std::string stuck_on(const Heartbeats* heart = nullptr) const;
  std::string member_text(GroupRank member, const Heartbeats* heart) const;
  std::string why_late(const Operation& message, const Heartbeats* heart) const;
  const Call* first_call() const;
  void end_receives_from_any();
  GroupRank last_gone();
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
  Failure failure_;                                 // written once, under failure_mutex_
  std::function<void(const Failure&)> on_failure_;  // guarded by failure_mutex_
  std::atomic<std::uint64_t> sequence_{0};          // number of the last collective submitted

  Channels channels_;
  GroupWindow window_;
  CallHistory history_;
  PlanCache plans_;
  Executor executor_;
  OperationList calls_;  ///< Pending collectives. The first one is in flight; the others wait.
  /// State of the carrier's collective; `no` if the carrier runs none.
  enum class Carried { no, runs, ended };
  Carried carried_ = Carried::no;
  /// True once record_algorithm() has been called for the last plan.
  bool algorithm_recorded_ = false;
  const std::uint32_t flight_group_;  ///< Index of the group in the flight recorder.
  /// Index of the group under which the flight recorder lists the calls that a GPU carries out
  /// without the host. Set at the first such call.
  std::optional<std::uint32_t> device_flight_group_;
  mutable EnqueuedCalls enqueued_;
  Wait enqueued_wait_;
  std::uint8_t algorithm_ = 0;  ///< Index, in the flight recorder, of the last algorithm recorded.
  Messages messages_;
  ByRank<GroupRank, std::shared_ptr<Operation>> received_;  ///< See received_from().
  std::unique_ptr<Carrier> carrier_;  ///< Null if calls use links and the window.
  bool in_messages_ = false;          // false while advance_calls() advances collectives, then true
  bool failure_announced_ = false;
  /// True once on_failure() was called, or the group was destroyed without a failure.
  bool failure_recorded_ = false;
  bool failure_heard_ = false;  ///< True if another member announced the failure.
  /// A failure that is not reported yet. Set when a link to a peer has broken or the carrier has
  /// failed. The peer may have died, or may have closed the link because of a failure that it is
  /// about to announce. This rank waits a moment for that announcement, which names the cause. If
  /// none arrives, the group fails with this failure.
  std::optional<Failure> suspicion_;
  Clock::time_point suspected_at_;
  /// The first member that died. Invalid while all members live or have left in good order.
  GroupRank dead_;
  Clock::time_point lost_at_;  ///< Time at which this rank learned of the death of `dead_`.
  /// True if no announcements and no data of the dead member can arrive any more.
  bool fell_silent_ = false;
  /// A member's announcement that it has destroyed the group.
  struct Ending {
    std::uint64_t last;  ///< Number of the last collective that the member started.
    std::string reason;
    Clock::time_point heard;
  };
  ByRank<GroupRank, std::optional<Ending>> endings_;
  Agreement agreement_;
  std::shared_ptr<SurvivorSearch> search_;  ///< Null if this rank takes part in no agreement.
  /// Time at which a collective last made progress, or at which a call started while no collective
  /// was pending.
  Clock::time_point collectives_moved_;
  std::int64_t weight_ = 0;  // staging memory, in bytes, last reported to Staging
  /// Value of sequence() when release_idle() last found no pending call.
  std::uint64_t calls_when_idle_ = 0;
  std::uint64_t compared_ = 0;  // number of the last call sent to the next member for comparison
  Clock::time_point idle_since_;
  Clock::time_point last_progress_;
  Clock::time_point next_probe_;
  /// See Config::warn_after; zero if no warnings are logged.
  const Clock::duration warn_after_ = std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(around_.config.warn_after));
  Wait collective_wait_;
  Wait message_wait_;
  ByRank<GroupRank, std::optional<Reported>> reported_;
  std::uint64_t probed_ = 0;  ///< Sequence number of the call that the last probe was about.
};

}  // namespace mccl::engine
