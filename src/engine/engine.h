// Executes the calls of this process's groups. A process has one engine for each job.
//
// One pass of the driver (engine_pass.cpp):
//   starts the calls that were submitted          groups/inbox.h
//   at intervals, also handles:                   peers/, links/link_maker.h,
//     control messages, new links,                groups/group_control.cpp
//     heartbeats, timeouts
//   advances the calls of every active group      groups/group_calls.cpp, collectives/, messages/
//
// Threads and locks, in lock order:
// - The progress lock (driving/driver.h): the thread that holds it drives, that is, advances the
//   calls. It guards everything that moves bytes: transports, control connections, groups with
//   their channels and executors.
// - The inbox's lock: guards what other threads submit to the driver, and the group names. Held for
//   a few instructions.
// - A group's failure lock and a Work's lock. No other lock is taken while one of these is held.
//
// A thread that forks holds the progress lock and the inbox's lock from before_fork() until the
// fork has returned; the driving thread hands over the progress lock. Callbacks of a Work run
// without any lock. abort() takes only the inbox's lock and the group's failure lock. No thread
// sleeps while it holds one of these two locks, so abort() never waits for a sleeping driver.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/cabling.h"
#include "base/call_clock.h"
#include "base/clock.h"
#include "base/flight_recorder.h"
#include "base/log.h"
#include "base/rank.h"
#include "base/signal_watch.h"
#include "engine/calls/completions.h"
#include "engine/driving/driver.h"
#include "engine/groups/group_records.h"
#include "engine/groups/groups.h"
#include "engine/groups/inbox.h"
#include "engine/links/link_maker.h"
#include "engine/metrics_server.h"
#include "engine/peers/heartbeats.h"
#include "engine/peers/peers.h"
#include "engine/peers/reports.h"
#include "engine/status_server.h"
#include "mccl/call_site.h"
#include "mccl/config.h"
#include "mccl/metrics.h"
#include "mccl/store.h"
#include "node/neighbour.h"
#include "rendezvous/connections/proof.h"
#include "rendezvous/meeting/meeting.h"
#include "schedule/cable_map.h"

namespace mccl::engine {

struct EngineOptions {
  int rank = 0;
  int size = 1;
  std::shared_ptr<Store> store;
  Config config;
  std::shared_ptr<Metrics> metrics;
  std::shared_ptr<rendezvous::Wiring> wiring = nullptr;  ///< See ContextOptions; may be null.
  /// RDMA verbs. If null, the verbs library of this machine is loaded.
  std::shared_ptr<transport::rdma::Verbs> verbs = nullptr;
  bool has_gpus = false;
};

class Engine : public CallDriver, private Driven, public std::enable_shared_from_this<Engine> {
 public:
  /// Creates this process's engine and connects it to all other ranks. Blocks until they are
  /// connected. Throws InvalidArgument for invalid options, TimeoutError if a rank does not arrive
  /// in time, PeerError if a rank fails meanwhile, and MismatchError if the ranks' sizes or
  /// settings differ.
  static std::shared_ptr<Engine> create(EngineOptions options);
  ~Engine() override;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  int rank() const { return options_.rank; }
  int size() const { return options_.size; }
  const Config& config() const { return options_.config; }
  const std::shared_ptr<Metrics>& metrics() const { return options_.metrics; }
  const FlightRecorder& recorder() const { return *recorder_; }
  /// Returns the state of this rank's groups and peers as JSON, for `mccl status`
  /// (docs/inspect.md).
  std::string status_json();
  /// Asks the other ranks for their states over the control connections, and returns the reports as
  /// JSON.
  std::string status_of_others_json();
  const Log& log() const { return log_; }
  Store& store() const { return *options_.store; }
  /// Returns a weak reference, because shutdown() may release the store while objects that use the
  /// store still exist.
  std::weak_ptr<Store> weak_store() const { return options_.store; }
  /// True if every rank set `EngineOptions::has_gpus`; false for a job of one rank.
  bool all_ranks_have_gpus() const { return met_.all_have_gpus; }

  /// The node number of each rank of the job, indexed by rank; empty if no two ranks share memory.
  const std::vector<int>& nodes() const { return memory_->nodes; }
  /// Allocates memory that this rank's neighbours can read; see Context::allocate(). Thread-safe.
  std::shared_ptr<std::byte> allocate(std::size_t bytes) const {
    return node::allocate(memory_->arena, bytes);
  }
  /// True if all ranks of the job share memory.
  bool is_one_node() const {
    return !nodes().empty() && std::ranges::count(nodes(), nodes().front()) == options_.size;
  }
  /// The costs of links and memory from which new groups choose their schedules. learn() replaces
  /// them; it must be called only while a single thread uses the engine.
  const schedule::Facts& facts() const { return facts_; }
  void learn(schedule::Facts facts) { facts_ = std::move(facts); }
  /// The cables between ranks. By default, one network connects all pairs. A hostfile or a table of
  /// RDMA devices may restrict which pairs have a cable. learn() adds the measured latencies and
  /// rates.
  const Cabling& cabling() const { return cabling_; }
  void learn(Cabling cabling) { cabling_ = std::move(cabling); }
  /// Number of ranks per core on this host; above 1 if ranks share cores. See processes_per_core().
  double ranks_per_core() const { return ranks_per_core_; }
  /// Descriptions of the equivalent paths to a peer, among which only a measurement can choose. Has
  /// more than one element only at the higher rank of the pair, which connects to the lower rank.
  /// New links use the first path until take_way() selects another.
  std::vector<std::string> equal_ways(int peer);
  void take_way(int peer, std::size_t way);
  /// Lets collectives of new groups read large buffers in the memory of other processes of this
  /// host; see MCCL_CROSS_MEMORY.
  void read_processes();
  /// The costs from which `group` chooses its schedules. They contain the size of the group's
  /// window only after its first collective.
  schedule::Facts facts_of(GroupState& group);
  /// Sets whether the metrics count calls and new links; true at first.
  void count_calls(bool count) { completions_.count_calls(count); }

  /// Creates the group on this rank. `compression` applies to sums whose call sets no compression.
  /// Throws InvalidArgument if the members are invalid, or if a group of this name already exists
  /// on this rank.
  std::shared_ptr<GroupState> make_group(const std::string& name, const std::vector<int>& members,
                                         std::chrono::milliseconds timeout,
                                         const Compression& compression = {});
  /// Makes the group run its calls through `carrier`; see GroupState::carry_by.
  void carry_by(const std::shared_ptr<GroupState>& group, std::unique_ptr<Carrier> carrier);
  /// Wakes the driver. A carrier calls this on any thread when one of its calls has ended.
  void wake() { driver_.wake(); }
  struct Survivors {
    std::vector<int> ranks;   ///< Ranks in the job, ordered by group rank.
    std::uint64_t round = 0;  ///< Number of the agreement in its group, from 1.
  };
  /// Agrees with the other members on which members survive; see Group::shrink().
  Survivors survivors_of(const std::shared_ptr<GroupState>& group,
                         std::chrono::milliseconds timeout);
  /// Ends the group on this rank. Called when no more calls will be submitted. Pending calls fail.
  void close_group(const std::shared_ptr<GroupState>& group) noexcept;

  /// Tries to run a call on the calling thread. A collective succeeds if no other call is in
  /// flight, it needs only the node's window (or its carrier allows it), and the other ranks make
  /// the same call soon. A small send succeeds if the link takes the whole message immediately. A
  /// small receive succeeds if no other call is in flight and the message arrives soon. Returns
  /// `whole` if the call is complete; `begun` is then null or, after a receive, a finished call
  /// that reports the sender. Returns `not_yet` if the driver continues the call; `begun` then
  /// refers to it. Returns `no` if nothing has happened; the caller must then submit the call.
  AtOnce run_at_once(const std::shared_ptr<GroupState>& group, Task& task,
                     std::chrono::milliseconds timeout, std::shared_ptr<Operation>& begun);
  /// Tries to run, on the calling thread, a message that already has a Work. If this returns
  /// `whole`, the caller must call end_at_once() next.
  AtOnce run_at_once(const std::shared_ptr<Operation>& message);
  /// Completes messages that run_at_once() has sent or received in full, and runs their callbacks
  /// on this thread.
  void end_at_once(std::span<const std::shared_ptr<Operation>> messages) noexcept;

  /// Records, in the flight recorder, a collective that a GPU is about to carry out without the
  /// host. `algorithm` is its algorithm, a text that is never freed. Called from any thread.
  void record_enqueued(GroupState& group, const Request& request,
                       std::string_view algorithm) noexcept;

  /// Announces to rank 0 that this rank has read everything that it needs from the store. Rank 0's
  /// shutdown waits for this announcement from every living rank, for a few seconds at most.
  void announce_arrival();

  /// Queues calls of one group together, in order.
  void submit(std::span<const std::shared_ptr<Operation>> operations);

  /// See Driver::help().
  void help(detail::WorkState& work, Clock::time_point deadline) override;

  void abort(const std::shared_ptr<GroupState>& group, const std::string& reason);
  /// Fails the group on all its members, soon. No-op if it has failed already.
  void fail(const std::shared_ptr<GroupState>& group, Failure failure);

  /// Sends goodbye to the peers, fails pending calls and ends the progress thread. Only the first
  /// call of shutdown() has an effect. A callback may call shutdown(), even on the progress thread,
  /// which then ends after its callbacks have returned. Works even when memory has run out.
  void shutdown() noexcept;

  /// Called around fork() on the thread that forks. During the fork this thread holds the progress
  /// lock and the inbox's lock, so the child's copy of the engine is consistent and no other thread
  /// holds these locks.
  void before_fork() noexcept;
  void after_fork_in_parent() noexcept;
  /// Called in the child of a fork. Closes the child's copies of the descriptors; everything else
  /// belongs to the parent.
  void abandon_after_fork() noexcept;

 private:
  explicit Engine(EngineOptions options);

  // Defined in engine.cpp:
  rendezvous::Met meet();
  void throw_if_a_peer_is_lost();
  void refuse_in_child() const;

  // Defined in engine_shutdown.cpp:
  bool somebody_still_arrives();
  void see_links_off(std::unique_lock<std::mutex>& lock, const SignalWatch& signals) noexcept;
  void tell_of_the_wait() noexcept;

  // Defined in engine_groups.cpp:
  std::vector<int> nodes_of(const std::vector<WorldRank>& members) const;
  std::shared_ptr<const schedule::CableMap> cables_of(const std::vector<int>& members) const;

  // Defined in engine_at_once.cpp:
  std::chrono::microseconds longest_spin() const;
  std::unique_lock<std::mutex> lock_for(const Call& call);
  AtOnce try_at_once(GroupState& group, Task& task);
  void continue_later(const std::shared_ptr<Operation>& call);
  [[noreturn]] void fail_at_once(GroupState& group, const Task& task, const std::exception& error);
  template <typename Advance>
  bool spin_until(bool carried, Advance advance);
  bool look_beside_safely(Clock::time_point now);

  /// Time within which the driving thread must release the progress lock for a thread that reads
  /// the engine's state. If it does not, the status contains `"answers": false` and no groups or
  /// peers.
  static constexpr std::chrono::milliseconds kForTheDriver{500};

  // Defined in engine_metrics.cpp:
  void start_metrics_server();
  std::optional<RankFigures> figures();
  std::string_view state_of(WorldRank peer) const;  // called under the progress lock

  // Defined in engine_status.cpp:
  nlohmann::ordered_json identity() const;
  nlohmann::ordered_json status();  // called under the progress lock
  std::string report();             // called under the progress lock

  // Defined in engine_pass.cpp: the work of the driver, which holds the progress lock.
  static void progress_loop(const std::weak_ptr<Engine>& engine);
  bool pass() override;
  bool move();
  void take_in() noexcept;
  void attempt(GroupState& group, const std::function<void()>& action,
               const std::shared_ptr<Operation>& operation = nullptr) noexcept;
  void start(const std::shared_ptr<Operation>& operation);
  void look_beside(Clock::time_point now);
  void hear_and_connect(Clock::time_point now);
  void keep_time(Clock::time_point now);
  void beat(Clock::time_point now);
  void hear(WorldRank peer, const ControlMessage& message);
  void report_safely(const std::function<void()>& action);
  void lose(WorldRank peer, const std::string& reason, transport::Loss loss);
  void fail_all(const std::exception& error) noexcept;
  bool has_calls() const override { return !groups_.idle() || inbox_.waiting(); }
  bool has_unattended_calls() const override { return !groups_.attended() || inbox_.waiting(); }
  /// Next time at which a transport needs a call of progress(), or a status report must be sent.
  Clock::time_point next_deadline() const {
    return std::min(links_.next_deadline(), reports_.next_answer());
  }
  bool sleeps_too_long() const override { return next_deadline() < due_; }
  bool callbacks_wait() const override { return completions_.callbacks_wait(); }
  bool run_callbacks(std::unique_lock<std::mutex>& lock) override;
  bool arm() override;
  void disarm() override;
  void prepare(Sleep& sleep) override;
  void has_slept(bool beside, Clock::time_point now) override;

  EngineOptions options_;
  const Log log_;
  /// Interval between calls of hear_and_connect() while the driver moves data.
  const Clock::duration between_looks_;
  /// Longest sleep while calls are pending. It limits the delay before a timeout is detected.
  const Clock::duration longest_nap_;
  schedule::Facts facts_;  ///< Constant once several threads use groups.
  Cabling cabling_;        ///< Constant once several threads use groups.
  std::atomic<bool> abandoned_{false};
  /// The thread that holds the progress lock and the inbox's lock during a fork.
  std::atomic<std::thread::id> forker_{};

  Driver driver_;
  /// Rank 0's key file; null on other ranks, and if the ranks have a key of their own.
  std::shared_ptr<const rendezvous::KeyFile> key_file_;
  rendezvous::Met met_;  ///< Result of meet(); later members are initialised from it.
  const double ranks_per_core_;
  const std::shared_ptr<const node::SharedMemory> memory_;
  const std::shared_ptr<FlightRecorder> recorder_;

  // Guarded by the progress lock:
  Peers peers_;
  Heartbeats heart_;
  Reports reports_;
  LinkMaker links_;
  Staging staging_;
  Completions completions_;
  CallClock call_clock_;
  Surroundings surroundings_;
  Groups groups_;
  Clock::time_point next_look_;
  Clock::time_point due_;  ///< Value of next_deadline() before the progress thread's last sleep.
  bool unheard_ = false;   ///< True if received control messages may still wait to be handled.
  bool awaits_arrivals_ = false;
  Clock::time_point next_watch_;
  Inbox::Content taken_;  ///< Taken from the inbox; empty except during take_in().

  Inbox inbox_;
  /// Guarded by the inbox's lock. The forking thread holds this lock, so the child gets a
  /// consistent copy.
  GroupNames names_;

  std::optional<StatusServer> status_server_;    ///< Empty for a job of one rank.
  std::optional<MetricsServer> metrics_server_;  ///< Empty unless metrics_port is set.
  std::thread thread_;
  /// True once shutdown() has closed the links. The function that SIGTERM calls waits for this, and
  /// may outlive the engine.
  const std::shared_ptr<std::atomic<bool>> links_are_closed_ =
      std::make_shared<std::atomic<bool>>(false);
  std::shared_ptr<void> at_termination_;  ///< Shuts the engine down on SIGTERM.
};

}  // namespace mccl::engine
