// Decides which thread drives, and how it sleeps. One thread at a time drives the engine and holds
// its progress lock. If a caller waits for its own call, it drives. Otherwise the progress thread
// does; it drives calls without a waiting caller and reacts to what arrives. While nothing moves,
// the driver spins for a while and then sleeps in poll. The progress thread sleeps without the
// lock.
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

/// The events and the time that end a sleep.
struct Sleep {
  std::vector<pollfd> watched;
  std::size_t beside_end = 0;  ///< End of the descriptors in `watched` that carry no data.
  Clock::time_point until = Clock::time_point::max();

  /// Watches a link for `events`. While the system has no memory for a write, which poll cannot
  /// report, `until` is set to the link's retry time instead of POLLOUT.
  void watch(const transport::Link& link, short events);

  /// Timeout for poll(2): -1 for none, at most 60 000.
  int timeout_ms() const;
  /// True if poll found an event on a descriptor that carries no data.
  bool beside_data() const;
};

/// The work that a Driver drives. All functions are called under the progress lock, which
/// run_callbacks() releases.
class Driven {
 public:
  virtual ~Driven() = default;

  /// Does what can be done now. Returns false if nothing moved.
  virtual bool pass() = 0;
  /// True if calls are in flight or have been submitted.
  virtual bool has_calls() const = 0;
  virtual bool callbacks_wait() const = 0;
  /// Releases the lock while callbacks run. Returns false if the lock could not be taken again at
  /// once, because another thread drives now.
  virtual bool run_callbacks(std::unique_lock<std::mutex>& lock) = 0;

  /// From now on, neighbours wake the driver when it sleeps. The caller must make one more pass
  /// before it sleeps. Returns false if no neighbour can send anything.
  virtual bool arm() = 0;
  virtual void disarm() = 0;
  virtual void prepare(Sleep& sleep) = 0;
  /// Called by the driver after a sleep, with the lock. `beside`: something may be waiting beside
  /// the data.
  virtual void has_slept(bool beside, Clock::time_point now) = 0;
};

class Driver {
 public:
  /// `spin`: how long the driver looks for data before it sleeps. `driven` must outlive all use.
  Driver(Driven& driven, std::chrono::microseconds spin) : driven_(driven), spin_(spin) {}

  /// The progress lock.
  std::mutex& mutex() { return mutex_; }

  /// Drives until `work` is done or `deadline` has passed. Sleeps instead while another thread
  /// drives.
  void help(detail::WorkState& work, Clock::time_point deadline);
  /// Drives until `work` is done; if that is null, until nothing moves any more. May return without
  /// the lock.
  void drive(std::unique_lock<std::mutex>& lock, const detail::WorkState* work,
             Clock::time_point deadline);
  /// Called by the progress thread. Drives until nothing moves and then fills `sleep` for a sleep
  /// without the lock. `sleep` is separate from the driver's own, since other threads may drive
  /// meanwhile. Returns false if the driver has been stopped.
  bool drive_until_idle(Sleep& sleep);

  /// Wakes a sleeping driver, which then makes another pass. Called from any thread.
  void wake() { wake_pipe_.wake(); }
  /// Descriptor that neighbours write to in order to wake this process.
  int bell_pipe() const { return wake_pipe_.writing_end(); }

  /// Stops the driver. Returns true for the first call only.
  bool stop() { return !stopping_.exchange(true); }
  bool stopping() const { return stopping_; }

  std::chrono::microseconds spin() const { return spin_; }
  /// True if the driving thread is a caller that waits for its call. Called with the lock held.
  bool caller_drives() const { return caller_drives_; }
  /// Called before anything is driven if some ranks of this machine share a core: then waiting
  /// threads yield it.
  void share_cores() { crowded_ = true; }
  bool shares_cores() const { return crowded_; }

  /// Called around fork(). make_way() makes the driver yield and takes the lock for the thread that
  /// forks; go_on() releases it.
  void make_way();
  void go_on();
  /// Called in the child of a fork.
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
  std::atomic<int> forking_{0};  ///< Number of threads in fork().
  WakePipe wake_pipe_;
  Sleep sleep_;                 // guarded by mutex_
  bool caller_drives_ = false;  // guarded by mutex_
};

}  // namespace mccl::engine
