// Executes calls on links: one per process and job.
//
// Threads and locks, in the order in which they are taken:
// - progress_mutex_: whoever holds it drives. It guards everything that moves bytes: the mesh, the
//   control connections, the groups' channels, executors and messages. Normally the caller that
//   waits for its own call holds it; the progress thread takes it when calls run that nobody waits
//   for, and when something arrives while nobody drives. It sleeps without the lock.
// - inbox_mutex_: what other threads hand to the driver. Held for a few instructions.
// - a group's failure lock and a Work's lock: leaves.
// A thread that forks holds the first two from before_fork() on; whoever drives makes way for it.
// Callbacks of a Work run without any lock. abort() takes only inbox_mutex_ and the group's failure
// lock, which nobody holds while waiting.
#pragma once

#include <poll.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "engine/departing.h"
#include "engine/group_names.h"
#include "engine/group_state.h"
#include "engine/liveness.h"
#include "engine/peers.h"
#include "engine/unmade_groups.h"
#include "engine/wake_pipe.h"
#include "mccl/config.h"
#include "mccl/metrics.h"
#include "mccl/store.h"
#include "rendezvous/mesh.h"
#include "rendezvous/neighbours.h"

namespace mccl::engine {

struct EngineOptions {
  int rank = 0;
  int size = 1;
  std::shared_ptr<Store> store;
  Config config;
  std::shared_ptr<Metrics> metrics;
};

class Engine : public std::enable_shared_from_this<Engine> {
 public:
  /// Meets all other ranks. Throws InvalidArgument, TimeoutError, PeerError, MismatchError.
  static std::shared_ptr<Engine> create(EngineOptions options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  int rank() const { return options_.rank; }
  int size() const { return options_.size; }
  const Config& config() const { return options_.config; }
  const std::shared_ptr<Metrics>& metrics() const { return options_.metrics; }
  const Log& log() const { return log_; }
  Store& store() const { return *options_.store; }

  /// The node of each rank of the job; empty when no two share memory.
  const std::vector<int>& nodes() const { return neighbourhood_.nodes; }
  /// What the groups that are made from now on know. Before the first group is made.
  const schedule::Facts& facts() const { return facts_; }
  void learn(schedule::Facts facts) { facts_ = std::move(facts); }
  double ranks_per_core() const { return ranks_per_core_; }
  /// What a group's schedules are chosen by, once it has made a call.
  schedule::Facts facts_of(GroupState& group);
  /// Whether calls are counted in the metrics; they are from the beginning.
  void count_calls(bool count) { counts_calls_.store(count, std::memory_order_relaxed); }

  /// Throws InvalidArgument when a living group has the name.
  std::shared_ptr<GroupState> make_group(const std::string& name, std::vector<int> members,
                                         std::chrono::milliseconds timeout);
  /// No more calls come; those that are pending fail.
  void close_group(const std::shared_ptr<GroupState>& group);

  /// Runs a collective here and now if nothing else is under way, nothing but the node's memory is
  /// needed, and the neighbours come soon: then the result is empty and `done` true. If it has
  /// begun and they do not come, the engine goes on with it, and the result is the call. Otherwise
  /// nothing has happened, and it can be submitted.
  struct AtOnce {
    bool done = false;
    std::shared_ptr<Operation> begun;
  };
  AtOnce run_at_once(const std::shared_ptr<GroupState>& group, Task& task,
                     std::chrono::milliseconds timeout);

  /// Queues calls of one group together, in order.
  void submit(std::span<const std::shared_ptr<Operation>> operations);

  /// Drives until `work` is done or `deadline` has passed, or waits while another thread drives.
  void help(detail::WorkState& work, Clock::time_point deadline);

  void abort(const std::shared_ptr<GroupState>& group, const std::string& reason);

  /// Says goodbye, fails what is pending, ends the thread. The second time does nothing. Callbacks
  /// may call it, on the progress thread too, which then ends when they have returned.
  void shutdown();

  /// Around fork(), on the thread that forks: nothing is under way while it happens, so that the
  /// child finds everything whole and no lock held.
  void before_fork() noexcept;
  void after_fork_in_parent() noexcept;
  /// Closes the child's copies of the descriptors; the rest belongs to the parent.
  void abandon_after_fork() noexcept;

 private:
  explicit Engine(EngineOptions options);

  using Link = std::unique_ptr<transport::Link>;
  /// A link that this rank makes, the higher one of the pair.
  struct MadeLink {
    int peer = -1;
    rendezvous::LinkKey key;
    friend auto operator<=>(const MadeLink&, const MadeLink&) = default;
  };

  struct Inbox {
    std::vector<std::shared_ptr<GroupState>> created;
    std::vector<std::shared_ptr<Operation>> submitted;
    std::vector<std::shared_ptr<GroupState>> aborted;
    std::vector<std::shared_ptr<GroupState>> closed;
  };
  // engine.cpp: meeting the others.
  void meet();
  void throw_if_a_peer_is_lost();

  // engine.cpp
  void end_group(GroupState& group, const std::string& reason);
  void refuse_in_child() const;

  // engine_memory.cpp: what is shared with the other ranks of the node.
  const rendezvous::Neighbour* neighbour(int peer) const;
  std::vector<int> nodes_of(const std::vector<int>& members) const;
  void offer_window(GroupState& group);
  bool window_ready(GroupState& group);
  void weigh(GroupState& group);
  void report_staging();
  void release_idle(Clock::time_point now);
  int rails(int peer) const { return neighbour(peer) ? 1 : mesh_->rails(peer); }

  // engine_at_once.cpp
  void begin_at_once(GroupState& group, Task& task, const Plan& plan);
  [[noreturn]] void fail_at_once(GroupState& group, const Call& call, const std::exception& error);
  std::shared_ptr<Operation> hand_over(const std::shared_ptr<GroupState>& group, Task& task,
                                       std::chrono::milliseconds timeout);
  bool spin_until_finished(GroupState& group);
  void count_at_once(const Task& task, Clock::time_point begun);

  // engine_progress.cpp: driving. All but progress_loop and wake under progress_mutex_.
  static void progress_loop(const std::weak_ptr<Engine>& engine);
  bool drive_until_idle(std::vector<pollfd>& watched, int& timeout_ms);
  void drive(std::unique_lock<std::mutex>& lock, const detail::WorkState* work,
             Clock::time_point deadline);
  bool step();
  bool look_at_everything();
  bool look_beside_safely(Clock::time_point now);
  void fail_all(const std::exception& error) noexcept;
  bool advance(GroupState& group);
  bool advance_collectives(GroupState& group);
  bool advance_messages(GroupState& group);
  void finish_messages(GroupState& group);
  bool confirm_suspicion(GroupState& group);
  bool drain_inbox();
  void start(const std::shared_ptr<Operation>& operation);
  void begin_next(GroupState& group);
  const Plan& plan_for(GroupState& group, Task& task);
  void activate(const std::shared_ptr<GroupState>& group);
  void finish(const std::shared_ptr<Operation>& operation, std::exception_ptr error);
  bool run_deferred(std::unique_lock<std::mutex>& lock);
  void prepare_sleep(Clock::time_point deadline);
  bool fall_asleep();
  void sleep();
  void wake() { wake_pipe_.wake(); }

  // engine_control.cpp: everything beside the data. Under progress_mutex_.
  void look_beside(Clock::time_point now);
  void housekeeping(Clock::time_point now);
  void keep_time(Clock::time_point now);
  void beat(Clock::time_point now);
  void handle(int peer, const ControlMessage& message);
  void handle_of_group(int peer, GroupState& group, const ControlMessage& message);
  void handle_of_unmade(int peer, const ControlMessage& message);
  void answer_probe(int peer, GroupState& group, const Call& call);
  void lose(int peer, const std::string& reason, Channels::Loss loss);
  void catch_up(GroupState& group);
  void fail(GroupState& group, const Failure& failure);
  void settle_failure(GroupState& group);
  void watch_time(GroupState& group, Clock::time_point now);
  void probe(GroupState& group, Clock::time_point now);
  std::string stuck_on(const GroupState& group) const;
  GroupState* find_group(std::uint64_t id);

  // engine_links.cpp: the links of groups. Under progress_mutex_.
  void request_links(GroupState& group, rendezvous::Purpose purpose, int member);
  void tell(int peer, ControlKind kind, const rendezvous::LinkKey& key);
  void handle_link(int peer, GroupState& group, const ControlMessage& message);
  void opened(int peer, GroupState& group, const rendezvous::LinkKey& key);
  void make_link(int peer, const Channel& channel, const rendezvous::LinkKey& key);
  void dial(int peer, const rendezvous::LinkKey& key);
  bool share_link(int peer, const rendezvous::LinkKey& key);
  void take_shared_link(int peer, GroupState& group, const ControlMessage& share);
  void let_go_of(int peer, const transport::shm::RangePlace& place);
  void share_answered(int peer, GroupState& group, const ControlMessage& answer);
  void handle(rendezvous::MeshEvent& event);
  void attach(int peer, GroupState& group, const rendezvous::LinkKey& key,
              std::unique_ptr<transport::Link> link);
  void forget_links(const GroupState& group);

  EngineOptions options_;
  const Log log_;
  const std::chrono::microseconds spin_limit_;
  /// How often the driver looks beside the data while it is busy with data.
  const Clock::duration between_looks_;
  /// How long a sleep with calls pending may be: timeouts are noticed this late at most.
  const Clock::duration longest_nap_;
  schedule::Facts facts_;  ///< Not changed once groups are used by several threads.
  std::atomic<bool> counts_calls_{true};
  std::atomic<bool> stopping_{false};
  std::atomic<bool> abandoned_{false};
  std::atomic<int> forking_{0};  ///< Threads that fork: who drives lets go of the lock for them.
  std::atomic<std::thread::id> forker_{};  ///< The one that holds both locks for it.

  std::mutex progress_mutex_;
  // Guarded by progress_mutex_:
  std::unique_ptr<rendezvous::Mesh> mesh_;        ///< Null when the job has one rank.
  std::shared_ptr<transport::shm::Arena> arena_;  ///< Null when nothing is shared.
  rendezvous::Neighbourhood neighbourhood_;       ///< Constant once the others are met.
  std::optional<transport::shm::Sleeper> sleeper_;
  Peers peers_;
  std::map<std::uint64_t, std::shared_ptr<GroupState>> groups_;
  std::vector<std::shared_ptr<GroupState>> active_;
  double silence_s_ = 0;  ///< Of a peer, until it is given up.
  Liveness liveness_;
  std::vector<std::uint64_t> beats_seen_;  ///< By rank, of neighbours.
  UnmadeGroups unmade_;
  std::map<MadeLink, Link> making_;  ///< Null while it is dialled, or offered and not taken yet.
  Departing departing_;
  std::vector<std::pair<std::vector<Work::Callback>, std::exception_ptr>> deferred_;
  std::uint32_t at_once_ = 0;       ///< Calls done at once, of which only some are timed.
  std::shared_ptr<Tally> tally_;    ///< Of those that are not.
  bool staging_changed_ = false;    ///< Since it was reported last.
  std::int64_t staging_bytes_ = 0;  ///< As reported.
  std::int64_t groups_bytes_ = 0;   ///< Of it, what groups take beside the arena.
  double ranks_per_core_ = 1;       ///< Of this machine, where they are most crowded.
  bool crowded_ = false;            ///< Some ranks of this machine share a core.
  Clock::time_point next_housekeeping_;
  Clock::time_point next_watch_;
  // The sleeper's: written under progress_mutex_; the progress thread reads its own copy without.
  std::vector<pollfd> watched_;
  std::size_t control_end_ = 0;
  int sleep_ms_ = -1;

  std::mutex inbox_mutex_;
  Inbox inbox_;             // guarded by inbox_mutex_
  GroupNames group_names_;  // guarded by inbox_mutex_
  std::atomic<bool> inbox_waiting_{false};

  WakePipe wake_pipe_;
  std::thread thread_;
};

}  // namespace mccl::engine
