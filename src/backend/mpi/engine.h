// Calls into one MPI library, driven to their ends.
//
// Everything that MPI is asked begins without waiting and is tested until it has ended, so that
// time limits, abort and a peer's farewell end a call that MPI would wait for without end. One
// thread at a time drives, holding `driving_`: a caller that waits for its own call, or else the
// engine's thread, while calls are under way that nobody waits for. MPI has no way to sleep until
// something arrives, so who drives looks again and again, at longer intervals the longer nothing
// comes; when no call is under way, nobody does.
//
// A large call of Open MPI is its that waits, since it does worse in the other form: all ranks
// gather first, by a barrier that is tested like any call, and then a thread of the group's makes
// the call (worker.h). It takes MPI_THREAD_MULTIPLE.
//
// When a group fails, its calls that are small or that MPI gives back end at once. The others have
// the program's memory: they get a last moment, in which most end by themselves, since all ranks
// are in them. When that has passed, MPI is called no more (end_for_good).
//
// Where MPI grants no more than MPI_THREAD_FUNNELED, only the engine's thread drives, which is the
// one that has initialised MPI.
//
// Locks, in this order: driving_ (MPI itself, and all that is said to be of whoever drives), then
// inbox_mutex_ or a group's own, which are held for a few instructions.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "backend/mpi/call.h"
#include "backend/mpi/notice.h"
#include "mccl/work.h"

namespace mccl::mpi {

class Engine {
 public:
  /// `spin`: how long to look for progress before yielding the core.
  explicit Engine(std::chrono::microseconds spin);
  ~Engine();

  /// Runs `begin` on the engine's thread, where MPI is to be initialised, and rethrows what it
  /// throws; then the thread drives. `end` runs there last. False when `begin` has not returned in
  /// time: then the engine, and what `begin` needs, must never be destroyed.
  bool start(std::function<void()> begin, std::function<void()> end,
             std::chrono::milliseconds patience);
  void stop();

  /// In start()'s `begin`. The level says which threads may call MPI, and whether several at once;
  /// `is_shared`, that the program has initialised MPI, and may finalise it at any time.
  void use(Library& library, Handle control, int world_rank, ThreadLevel level, bool is_shared);

  /// Runs something that calls MPI, on a thread that may.
  void run(const std::function<void()>& body);

  /// While one exists, what is said of a group that is not there yet is kept until it is added: its
  /// first member may be through with it before this rank has it.
  class Expecting {
   public:
    explicit Expecting(Engine& engine) : engine_(engine) {
      engine_.run([this] { ++engine_.expecting_; });
    }
    ~Expecting() {
      engine_.run([this] {
        if (--engine_.expecting_ == 0) engine_.early_.clear();
      });
    }
    Expecting(const Expecting&) = delete;
    Expecting& operator=(const Expecting&) = delete;

   private:
    Engine& engine_;
  };
  /// On a thread that may call MPI.
  void add(const std::shared_ptr<GroupState>& group);
  /// Tells the members that this rank makes no further call there; frees what MPI has of it.
  void close(const std::shared_ptr<GroupState>& group, const std::string& reason);

  void submit(std::span<const std::shared_ptr<Call>> calls);
  /// For a caller that waits: the call's end, or its Work where it takes longer; nothing where
  /// another thread drives or the group has failed.
  std::optional<Work> run_at_once(const std::shared_ptr<Engine>& self,
                                  const std::shared_ptr<GroupState>& group, const Request& request,
                                  std::chrono::milliseconds timeout);
  void help(Call& call, Clock::time_point deadline);
  /// From any thread, at once.
  void abort(const std::shared_ptr<GroupState>& group, const std::string& reason);

  /// Hears what other ranks have said, where nobody drives.
  void listen();

  /// Why MPI is not called any more; empty while it is.
  std::string over() const;
  bool is_over() const {
    return over_.load(std::memory_order_acquire) || (is_shared_ && library_->finalized());
  }
  /// Whether a group has failed by something else than a wish.
  bool had_trouble() const { return trouble_; }
  void tell_departure(int world_size) noexcept;
  Notices& notices() { return *notices_; }

  void before_fork() {
    driving_.lock();
    inbox_mutex_.lock();
  }
  void after_fork() {
    inbox_mutex_.unlock();
    driving_.unlock();
  }
  /// In the child, by the thread that forked: MPI is the parent's.
  void abandon();

 private:
  using Callbacks = std::vector<std::pair<std::vector<Work::Callback>, std::exception_ptr>>;

  void work();
  /// Ends the use of MPI with `last`, and calls it no more.
  void retire(const std::function<void()>& last);
  /// Does what can be done now; false when nothing has moved.
  bool pass();
  void take_inbox();
  void accept(const std::shared_ptr<Call>& call);
  void begin(const std::shared_ptr<Call>& call);
  bool is_bulk(const Request& request) const;
  /// Whether the call waits for all ranks to come.
  static bool gathers(const Call& call);
  void hand_to_worker(const std::shared_ptr<Call>& call);
  void end_bulk(const std::shared_ptr<Call>& call, std::exception_ptr error);
  void begin_waiting(GroupState& group);
  bool advance(const std::shared_ptr<Call>& call);
  bool end_failed(const std::shared_ptr<Call>& call);
  void look_around(Clock::time_point now);
  void hear_notices();
  void hear(const Notice& notice);
  /// The member that will never make the call, as a rank of the group; -1 for none.
  static int absentee(const Call& call, Clock::time_point now);
  void expire(const std::shared_ptr<Call>& call, Clock::time_point now);
  void run_errands();
  void sweep();
  void fail(const std::shared_ptr<GroupState>& group, Kind kind, const std::string& reason,
            bool tell);
  // What cannot be told is not: whoever waits for it has a time limit.
  void tell(const GroupState& group) noexcept;
  void say_left(const GroupState& group) noexcept;
  void send_to(const std::vector<int>& members, const Notice& notice);
  /// Whether the call can end: MPI has let go of all memory of the caller's.
  bool take_back(const std::shared_ptr<Call>& call);
  void end_for_good(const std::string& reason);
  void end_what_is_left();
  void finish(const std::shared_ptr<Call>& call, std::exception_ptr error);
  static std::exception_ptr error_of(const Call& call);
  std::unique_ptr<Flight> take_flight();
  void sleep_beside_worker(Call& call, Clock::time_point deadline, Clock::time_point now);
  void await_last_calls(const GroupState& group);
  void free_comms();
  void run_callbacks(Callbacks callbacks);
  Callbacks take_callbacks() { return std::exchange(callbacks_, {}); }
  void wake();
  bool has_work() const { return pending_ > 0 || asked_.load(std::memory_order_acquire); }

  std::atomic<bool> callers_drive_{true};  ///< Changes in start() and when the engine retires.
  bool makes_bulk_ = false;                ///< Set in start().
  bool is_shared_ = false;                 ///< Set in start().
  const std::chrono::microseconds spin_;
  Library* library_ = nullptr;  ///< Set in start().
  int world_rank_ = 0;

  std::mutex driving_;
  // Of whoever drives.
  std::unique_ptr<Notices> notices_;
  std::vector<std::shared_ptr<Call>> active_;
  std::map<std::uint64_t, std::weak_ptr<GroupState>> groups_;
  int expecting_ = 0;          ///< Groups that are being made.
  std::vector<Notice> early_;  ///< Of groups that are not there yet.
  std::string deaf_;           ///< Why what others say cannot be heard; empty while it can.
  struct Lost {
    std::shared_ptr<GroupState> group;
    std::unique_ptr<Flight> flight;
  };
  std::vector<Lost> lost_;  ///< Given up, but not by MPI.
  std::vector<std::unique_ptr<Flight>> spare_;
  std::vector<Handle> unused_;  ///< Communicators to be freed.
  Callbacks callbacks_;
  Clock::time_point looked_;
  std::uint32_t at_once_ = 0;

  mutable std::mutex inbox_mutex_;
  std::condition_variable wake_;                // with inbox_mutex_
  std::vector<std::shared_ptr<Call>> inbox_;    // guarded by inbox_mutex_
  std::vector<std::function<void()>> errands_;  // guarded by inbox_mutex_
  struct Failed {
    std::shared_ptr<GroupState> group;
    bool tell;
  };
  std::vector<Failed> failed_;  // guarded by inbox_mutex_
  std::string reason_over_;     // guarded by inbox_mutex_
  bool stopping_ = false;       // guarded by inbox_mutex_

  std::atomic<bool> has_inbox_{false};
  std::atomic<bool> asked_{false};  ///< There are errands, or groups to sweep.
  std::atomic<int> pending_{0};     ///< Calls that have been submitted and have not ended.
  std::atomic<int> helpers_{0};
  std::atomic<int> working_{0};  ///< Calls that threads of groups make.
  std::atomic<bool> over_{false};
  std::atomic<bool> trouble_{false};
  std::thread thread_;
  std::thread::id thread_id_;
};

}  // namespace mccl::mpi
