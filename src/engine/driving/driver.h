// Who drives, and who sleeps. One thread at a time drives the engine, holding its progress lock: a
// caller that waits for its own call, or else the progress thread, when calls run that nobody waits
// for and when something arrives while nobody drives. Who drives spins a little while nothing
// moves, and then sleeps in poll; the progress thread sleeps without the lock.
#pragma once

#include <poll.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <mutex>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/wake_pipe.h"
#include "base/work_state.h"
#include "transport/link.h"

namespace mccl::engine {

/// What to sleep for.
struct Sleep {
  std::vector<pollfd> watched;
  std::size_t beside_end = 0;  ///< Up to here are descriptors that bring no data.
  Clock::time_point until = Clock::time_point::max();

  /// For `events` of a link: to write when the system has memory for it, which poll cannot tell.
  void watch(const transport::Link& link, short events);

  /// For poll(2).
  int timeout_ms() const;
  /// Whether poll found something beside the data.
  bool beside_data() const;
};

/// What is driven. Used under the progress lock, but for run_callbacks().
class Driven {
 public:
  virtual ~Driven() = default;

  /// Does what can be done now; false if nothing moved.
  virtual bool pass() = 0;
  /// Whether calls are under way, or have been handed over.
  virtual bool has_calls() const = 0;
  virtual bool callbacks_wait() const = 0;
  /// Takes the lock off while callbacks run. False when it could not be had again at once: another
  /// thread drives now.
  virtual bool run_callbacks(std::unique_lock<std::mutex>& lock) = 0;

  /// From now on neighbours wake who sleeps; whoever calls it passes once more before. False when
  /// nothing would come from them.
  virtual bool arm() = 0;
  virtual void disarm() = 0;
  virtual void prepare(Sleep& sleep) = 0;
  /// Of the driver with the lock; `beside`: something may be waiting beside the data.
  virtual void has_slept(bool beside, Clock::time_point now) = 0;
};

class Driver {
 public:
  /// `spin`: for how long the driver looks for data before it sleeps. `driven` outlives its use.
  Driver(Driven& driven, std::chrono::microseconds spin) : driven_(driven), spin_(spin) {}

  /// The progress lock.
  std::mutex& mutex() { return mutex_; }

  /// Drives until `work` is done or `deadline` has passed, or sleeps while another thread drives.
  void help(detail::WorkState& work, Clock::time_point deadline);
  /// Until `work` is done, or without one until nothing moves any more. May return without the
  /// lock.
  void drive(std::unique_lock<std::mutex>& lock, const detail::WorkState* work,
             Clock::time_point deadline);
  /// Of the progress thread: until nothing moves, and then what to sleep for without the lock, a
  /// copy, since others drive meanwhile. False when there is no more to drive.
  bool drive_until_idle(Sleep& sleep);

  /// From any thread: whoever sleeps looks again.
  void wake() { wake_pipe_.wake(); }
  /// What neighbours write to for the same.
  int bell_pipe() const { return wake_pipe_.writing_end(); }

  /// True the first time.
  bool stop() { return !stopping_.exchange(true); }
  bool stopping() const { return stopping_; }

  std::chrono::microseconds spin() const { return spin_; }
  /// Whether a caller drives, for a call that it waits for. With the lock.
  bool caller_drives() const { return caller_drives_; }
  /// Some ranks of this machine share a core: who waits yields it. Before anybody drives.
  void share_cores() { crowded_ = true; }
  bool shares_cores() const { return crowded_; }

  /// Around fork(): who drives makes way for the thread that forks, which holds the lock.
  void make_way();
  void go_on();
  /// In the child.
  void abandon() noexcept { wake_pipe_.abandon(); }

 private:
  bool fall_asleep();
  void prepare(Sleep& sleep, Clock::time_point deadline);
  void sleep(Clock::time_point deadline);

  Driven& driven_;
  const std::chrono::microseconds spin_;
  bool crowded_ = false;
  std::mutex mutex_;
  std::atomic<bool> stopping_{false};
  std::atomic<int> forking_{0};  ///< Threads that fork.
  WakePipe wake_pipe_;
  Sleep sleep_;                 // guarded by mutex_
  bool caller_drives_ = false;  // guarded by mutex_
};

}  // namespace mccl::engine
