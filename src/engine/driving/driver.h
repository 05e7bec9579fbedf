// Decides which thread drives the engine, that is, advances its calls, and how that thread sleeps.
// Only one thread drives at a time, and it holds the progress lock while it drives. If a caller
// waits for its call, the caller's thread drives. Otherwise the progress thread drives: it advances
// calls for which no thread waits, and handles incoming messages. If no call makes progress, the
// driving thread polls the links for a while (it spins), and then sleeps in poll(2). The progress
// thread releases the lock while it sleeps.
#pragma once

#include <poll.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <mutex>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/thread.h"
#include "base/wake_pipe.h"
#include "base/work_state.h"
#include "transport/link.h"

namespace mccl::engine {

/// The events and the time that end a sleep.
struct Sleep {
  std::vector<pollfd> watched;
  std::size_t beside_end = 0;  ///< The first `beside_end` descriptors carry no data of calls.
  Clock::time_point until = Clock::time_point::max();

  /// Watches a link for `events`. If a write has failed because the system had no memory, poll(2)
  /// cannot report when a write may succeed again. Then POLLOUT is not watched, and the sleep ends
  /// at the link's retry time at the latest.
  void watch(const transport::Link& link, short events);

  /// Timeout for poll(2) in milliseconds, at most 60,000; -1 if `until` is max().
  int timeout_ms() const;
  /// True if poll found an event on a descriptor that carries no data of calls.
  bool beside_data() const;
};

/// The work that a Driver drives. All functions are called with the progress lock held. Only
/// run_callbacks() releases the lock.
class Driven {
 public:
  virtual ~Driven() = default;

  /// Does all work that is possible now. Returns false if no call made progress.
  virtual bool pass() = 0;
  /// True if calls are in flight or have been submitted.
  virtual bool has_calls() const = 0;
  /// True if has_calls(), unless all these calls are messages whose callers have promised to wait
  /// for them (Operation::caller_waits) and thus to drive.
  virtual bool has_unattended_calls() const = 0;
  /// True if the sleep that the last prepare() arranged would last too long, because a transport or
  /// a status report now has an earlier deadline.
  virtual bool sleeps_too_long() const = 0;
  virtual bool callbacks_wait() const = 0;
  /// Runs callbacks, with the lock released. Returns false if another thread has taken the lock
  /// meanwhile and now drives.
  virtual bool run_callbacks(std::unique_lock<std::mutex>& lock) = 0;

  /// Asks neighbours to wake the driver from now on. Returns true if a neighbour can send data. The
  /// caller must then make one more pass before it sleeps, because data may have arrived before
  /// this call.
  virtual bool arm() = 0;
  virtual void disarm() = 0;
  virtual void prepare(Sleep& sleep) = 0;
  /// Called by the driver after a sleep, with the progress lock held. `beside` is true if there may
  /// be events other than data, such as control messages.
  virtual void has_slept(bool beside, Clock::time_point now) = 0;
};

class Driver {
 public:
  /// `spin` is the time for which a caller that drives polls for data before it sleeps. `driven`
  /// must remain valid as long as the driver is used.
  Driver(Driven& driven, std::chrono::microseconds spin) : driven_(driven), spin_(spin) {}

  /// The progress lock.
  std::mutex& mutex() { return mutex_; }

  /// Acquires the progress lock for a thread that makes or awaits a call. If the progress thread
  /// holds the lock, waits for it, at most for the time `longest`. Meanwhile the progress thread
  /// releases the lock as soon as no call makes progress. Returns without the lock after that time,
  /// if another caller drives, or if a thread is in make_way().
  std::unique_lock<std::mutex> lock_for_caller(std::chrono::microseconds longest);
  /// Drives calls until `work` is done or `deadline` has passed. If another thread already drives,
  /// only sleeps until one of the two happens.
  void help(detail::WorkState& work, Clock::time_point deadline);
  /// Drives until `work` is done or, if `work` is null, until no call makes progress. Stops earlier
  /// at `deadline`, after stop(), or for a thread in make_way(). Returns without the lock if
  /// another thread took it while callbacks ran.
  void drive(std::unique_lock<std::mutex>& lock, const detail::WorkState* work,
             Clock::time_point deadline);
  /// Called by the progress thread. Drives until no call makes progress. Then fills `sleep` with
  /// the events that end the sleep of the thread, which sleeps without the lock. `sleep` must not
  /// be `sleep_`, because another thread that drives meanwhile uses `sleep_`. Returns false if the
  /// driver has been stopped.
  bool drive_until_idle(Sleep& sleep);

  /// Wakes a sleeping driver, which then makes another pass. Called from any thread.
  void wake() { wake_pipe_.wake(); }
  /// Descriptor that neighbours write to in order to wake this process.
  int bell_pipe() const { return wake_pipe_.writing_end(); }

  /// Stops the driver. Returns true on the first call only.
  bool stop() { return !stopping_.exchange(true); }
  bool stopping() const { return stopping_; }

  /// Time for which a caller polls for data before it sleeps. It should exceed the time that waking
  /// all ranks of a host takes: with shorter times, one late rank makes the others sleep, their
  /// wake-ups make each of them late for the next call, and so on. On a virtual machine with 8
  /// cores and 8 ranks, 200 us prevented this and 50 us did not. Ranks that share cores poll as
  /// briefly as the progress thread.
  std::chrono::microseconds spin() const { return crowded_ ? spin_ / kBrief : spin_; }
  /// True if the thread that drives, or that drove last, is a caller that waits for its call.
  bool caller_drives() const { return caller_drives_.load(std::memory_order_relaxed); }
  /// Makes waiting threads yield their core to other ranks. Called before the first call is driven,
  /// if some ranks of this machine share a core.
  void share_cores() { crowded_ = true; }
  bool shares_cores() const { return crowded_; }

  /// make_way() makes the driving thread release the progress lock, and acquires the lock for the
  /// calling thread. go_on() releases the lock, so that a driver can continue. Used around fork(),
  /// and where the driving thread may sleep with the lock held.
  void make_way();
  void go_on();
  /// Does the same as make_way(), but stops waiting for the lock at the deadline. Returns false if
  /// the driving thread has not released the lock by then; go_on() must not follow.
  bool try_make_way(Clock::time_point deadline);
  /// Called in the child of a fork. Closes the child's copy of the wake-up pipe.
  void abandon() noexcept { wake_pipe_.abandon(); }

 private:
  /// The progress thread polls for 1/kBrief of `spin_`, because it may take the core of a thread
  /// that computes.
  static constexpr int kBrief = 4;

  bool fall_asleep();
  void prepare(Sleep& sleep, Clock::time_point deadline);
  void sleep(Clock::time_point deadline);

  Driven& driven_;
  const std::chrono::microseconds spin_;
  bool crowded_ = false;
  std::mutex mutex_;
  std::atomic<bool> stopping_{false};
  /// Number of threads between a call of make_way() or try_make_way() and the end of go_on().
  std::atomic<int> forking_{0};
  /// Number of threads in lock_for_caller() for which the progress thread stops spinning.
  std::atomic<int> callers_waiting_{0};
  /// Number of threads in help() that sleep because another thread drives.
  std::atomic<int> sleepers_{0};
  WakePipe wake_pipe_;
  Sleep sleep_;                             // guarded by mutex_
  std::atomic<bool> caller_drives_{false};  // written with mutex_ held
};

/// Calls try_make_way() in the constructor. If that succeeds, holds the progress lock until the
/// destructor.
class WayGuard {
 public:
  WayGuard(Driver& driver, Clock::time_point deadline)
      : driver_(driver.try_make_way(deadline) ? &driver : nullptr) {}
  ~WayGuard() {
    if (driver_) driver_->go_on();
  }
  WayGuard(const WayGuard&) = delete;
  WayGuard& operator=(const WayGuard&) = delete;
  /// True if this thread holds the progress lock.
  explicit operator bool() const { return driver_ != nullptr; }

 private:
  Driver* const driver_;
};

}  // namespace mccl::engine
