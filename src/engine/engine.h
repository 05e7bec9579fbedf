// Executes calls on links: one per process and job.
//
// What the driver does, pass after pass (engine_pass.cpp):
//   take in what callers have handed over        groups/inbox.h
//   look beside the data, now and then:          peers/, links/link_maker.h,
//   groups/group_control.cpp
//     control messages, links that came, hearts, clocks
//   move the calls of every group that has some  groups/group_calls.cpp, collectives/, messages/
//
// Threads and locks, in the order in which they are taken:
// - the progress lock (driving/driver.h): whoever holds it drives. It guards everything that moves
//   bytes: transports, control connections, groups with their channels and executors.
// - the inbox's lock, and that of the groups' names: what other threads hand to the driver. Held
// for
//   a few instructions.
// - a group's failure lock and a Work's lock: leaves.
// A thread that forks holds the first two from before_fork() on; whoever drives makes way for it.
// Callbacks of a Work run without any lock. abort() takes only the inbox's lock and the group's
// failure lock, which nobody holds while waiting.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/cabling.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/rank.h"
#include "engine/calls/completions.h"
#include "engine/calls/staging.h"
#include "engine/driving/driver.h"
#include "engine/groups/group_names.h"
#include "engine/groups/groups.h"
#include "engine/groups/inbox.h"
#include "engine/links/link_maker.h"
#include "engine/peers/heart.h"
#include "engine/peers/peers.h"
#include "mccl/config.h"
#include "mccl/metrics.h"
#include "mccl/store.h"
#include "node/neighbour.h"
#include "rendezvous/meeting.h"
#include "schedule/cable_map.h"

namespace mccl::engine {

struct EngineOptions {
  int rank = 0;
  int size = 1;
  std::shared_ptr<Store> store;
  Config config;
  std::shared_ptr<Metrics> metrics;
  std::shared_ptr<rendezvous::Wiring> wiring = nullptr;     ///< As ContextOptions.
  std::shared_ptr<transport::rdma::Verbs> verbs = nullptr;  ///< Null: this machine's.
  bool has_gpus = false;                                    ///< This rank.
};

class Engine : public CallDriver, private Driven, public std::enable_shared_from_this<Engine> {
 public:
  /// Meets all other ranks. Throws InvalidArgument, TimeoutError, PeerError, MismatchError.
  static std::shared_ptr<Engine> create(EngineOptions options);
  ~Engine() override;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  int rank() const { return options_.rank; }
  int size() const { return options_.size; }
  const Config& config() const { return options_.config; }
  const std::shared_ptr<Metrics>& metrics() const { return options_.metrics; }
  const Log& log() const { return log_; }
  Store& store() const { return *options_.store; }
  /// Gone once the engine has shut down.
  std::weak_ptr<Store> weak_store() const { return options_.store; }
  /// As EngineOptions say of each rank; false for a job of one.
  bool all_ranks_have_gpus() const { return met_.all_have_gpus; }

  /// The node of each rank of the job; empty when no two share memory.
  const std::vector<int>& nodes() const { return memory_->nodes; }
  /// What the groups that are made from now on know. Learned while only one thread uses the engine.
  const schedule::Facts& facts() const { return facts_; }
  void learn(schedule::Facts facts) { facts_ = std::move(facts); }
  /// Which ranks cables join; those between all where the settings name neither a hostfile nor a
  /// table of RDMA devices that leaves some out. What they can do is learned as the facts are.
  const Cabling& cabling() const { return cabling_; }
  void learn(Cabling cabling) { cabling_ = std::move(cabling); }
  /// Of this machine, where they are most crowded.
  double ranks_per_core() const { return ranks_per_core_; }
  /// The ways to a peer of which only a trial tells the best, for people: more than one only at the
  /// higher rank, whose links go by the first until another is taken. For links to come.
  std::vector<std::string> equal_ways(int peer);
  void take_way(int peer, std::size_t way);
  /// What a group's schedules are chosen by, once it has made a call.
  schedule::Facts facts_of(GroupState& group);
  /// Whether calls and new links count in the metrics, as they do from the beginning.
  void count_calls(bool count) { completions_.count_calls(count); }

  /// `compression`: of sums that say nothing of it. Throws InvalidArgument when a living group has
  /// the name.
  std::shared_ptr<GroupState> make_group(const std::string& name, const std::vector<int>& members,
                                         std::chrono::milliseconds timeout,
                                         const Compression& compression = {});
  /// As GroupState::carry_by.
  void carry_by(const std::shared_ptr<GroupState>& group, std::unique_ptr<Carrier> carrier);
  /// From any thread: what a carrier waits for has come.
  void wake() { driver_.wake(); }
  /// No more calls come; those that are pending fail.
  void close_group(const std::shared_ptr<GroupState>& group) noexcept;

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

  /// This rank has all that was agreed on when the job began; rank 0 does not end before it is told
  /// so by all that live, or for a few seconds.
  void tell_of_arrival();

  /// Queues calls of one group together, in order.
  void submit(std::span<const std::shared_ptr<Operation>> operations);

  /// Drives until `work` is done or `deadline` has passed, or waits while another thread drives.
  void help(detail::WorkState& work, Clock::time_point deadline) override;

  void abort(const std::shared_ptr<GroupState>& group, const std::string& reason);

  /// Says goodbye, fails what is pending, ends the thread. The second time does nothing. Callbacks
  /// may call it, on the progress thread too, which then ends when they have returned. Needs no
  /// memory where there is none.
  void shutdown() noexcept;

  /// Around fork(), on the thread that forks: nothing is under way while it happens, so that the
  /// child finds everything whole and no lock held.
  void before_fork() noexcept;
  void after_fork_in_parent() noexcept;
  /// Closes the child's copies of the descriptors; the rest belongs to the parent.
  void abandon_after_fork() noexcept;

 private:
  explicit Engine(EngineOptions options);

  // engine.cpp
  rendezvous::Met meet();
  void throw_if_a_peer_is_lost();
  bool somebody_still_arrives();
  void see_links_off(std::unique_lock<std::mutex>& lock) noexcept;
  std::vector<int> nodes_of(const std::vector<WorldRank>& members) const;
  std::shared_ptr<const schedule::CableMap> cables_of(const std::vector<int>& members) const;
  void refuse_in_child() const;

  // engine_at_once.cpp
  std::shared_ptr<Operation> hand_over(const std::shared_ptr<GroupState>& group, Task& task,
                                       std::chrono::milliseconds timeout);
  bool spin_until_finished(GroupState& group);
  bool look_beside_safely(Clock::time_point now);

  // engine_pass.cpp: what is driven. Under the progress lock.
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
  void lose(WorldRank peer, const std::string& reason, transport::Loss loss);
  void fail_all(const std::exception& error) noexcept;
  bool has_calls() const override { return !groups_.idle() || inbox_.waiting(); }
  bool callbacks_wait() const override { return completions_.callbacks_wait(); }
  bool run_callbacks(std::unique_lock<std::mutex>& lock) override;
  bool arm() override;
  void disarm() override;
  void prepare(Sleep& sleep) override;
  void has_slept(bool beside, Clock::time_point now) override;

  EngineOptions options_;
  const Log log_;
  /// How often the driver looks beside the data while it is busy with data.
  const Clock::duration between_looks_;
  /// How long a sleep with calls pending may be: timeouts are noticed this late at most.
  const Clock::duration longest_nap_;
  schedule::Facts facts_;  ///< Not changed once groups are used by several threads.
  Cabling cabling_;        ///< Nor is this.
  std::atomic<bool> abandoned_{false};
  std::atomic<std::thread::id> forker_{};  ///< The thread that holds both locks for a fork.

  Driver driver_;
  rendezvous::Met met_;  ///< The others; what follows is made of it.
  const double ranks_per_core_;
  const std::shared_ptr<const node::SharedMemory> memory_;

  // Guarded by the progress lock:
  Peers peers_;
  Heart heart_;
  LinkMaker links_;
  Staging staging_;
  Completions completions_;
  Surroundings surroundings_;
  Groups groups_;
  Clock::time_point next_look_;
  Clock::time_point links_due_;  ///< As they said before the last sleep.
  bool unheard_ = false;         ///< A peer has said more than was taken in at the last look.
  bool awaits_arrivals_ = false;
  Clock::time_point next_watch_;
  Inbox::Content taken_;  ///< From the inbox; empty but for the time in which it is taken in.

  Inbox inbox_;
  GroupNames names_;  // guarded by the inbox's lock, so that a fork finds them whole

  std::thread thread_;
  std::shared_ptr<void> at_termination_;  ///< Closes the devices if SIGTERM comes.
};

}  // namespace mccl::engine
