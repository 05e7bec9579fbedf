#include "engine/driving/driver.h"

#include <algorithm>
#include <new>

namespace mccl::engine {
namespace {

/// Time for which the driver spins without yielding its core. After this time, it yields the core
/// between two calls of pass(), so that a rank that it waits for can run there.
constexpr std::chrono::microseconds kPause{3};
constexpr std::chrono::milliseconds kNapWithoutMemory{5};
/// Number of attempts to take the progress lock between two readings of the clock.
constexpr int kTriesBetweenClocks = 64;
/// Time between two attempts of try_make_way() to take the progress lock from the driving thread.
constexpr std::chrono::microseconds kBetweenTries{100};

}  // namespace

void Sleep::watch(const transport::Link& link, short events) {
  if (link.is_broken()) events = static_cast<short>(events & ~POLLOUT);
  const Clock::time_point retry = link.retry_at();
  if ((events & POLLOUT) != 0 && retry != Clock::time_point::max()) {
    events = static_cast<short>(events & ~POLLOUT);
    until = std::min(until, retry);
  }
  if (events != 0) watched.push_back({link.descriptor(), events, 0});
}

int Sleep::timeout_ms() const {
  constexpr int kLongestMs = 60'000;
  return std::min(milliseconds_until(until), kLongestMs);
}

bool Sleep::beside_data() const {
  if (watched.empty()) return false;
  // Skips the first descriptor, the wake-up pipe: neighbours also write to it when they send data.
  const auto begin = watched.begin() + 1;
  const auto end =
      watched.begin() + static_cast<std::ptrdiff_t>(std::max<std::size_t>(beside_end, 1));
  return std::any_of(begin, end, [](const pollfd& descriptor) { return descriptor.revents != 0; });
}

std::unique_lock<std::mutex> Driver::lock_for_caller(std::chrono::microseconds longest) {
  // Leaves the lock to a thread in make_way() or try_make_way(). Without this check, a caller that
  // makes one call after another would hold the lock at almost every attempt of try_make_way(),
  // which makes one attempt per kBetweenTries.
  if (forking_.load(std::memory_order_relaxed) > 0) return {};
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock || caller_drives()) return lock;
  ++callers_waiting_;
  const Clock::time_point until = Clock::now() + longest;
  for (int tries = 1; !lock.try_lock(); ++tries) {
    if (caller_drives() || (tries % kTriesBetweenClocks == 0 && Clock::now() >= until)) break;
    !crowded_&& tries < kTriesBetweenClocks ? pause_core() : std::this_thread::yield();
  }
  --callers_waiting_;
  return lock;
}

void Driver::help(detail::WorkState& work, Clock::time_point deadline) {
  while (!work.done() && Clock::now() < deadline) {
    std::unique_lock lock = lock_for_caller(spin());
    if (!lock) {
      // Wakes the driver, which may be about to sleep without having seen this call. The count
      // comes first: a driver that leaves afterwards sees it.
      ++sleepers_;
      wake();
      work.sleep_until_done(deadline);
      --sleepers_;
      break;
    }
    drive(lock, &work, deadline);
    // If `lock` is not held, another thread took it while callbacks ran. That thread may neither
    // drive nor wake the driver, so this thread wakes the driver. A caller that has received a
    // message often waits for its own send next, and waking the driver would only disturb it.
    const bool goes_on = work.done() && !work.error() && sleepers_ == 0;
    const bool needs_driver = !lock || driven_.sleeps_too_long() ||
                              (goes_on ? driven_.has_unattended_calls() : driven_.has_calls());
    if (lock) lock.unlock();
    if (needs_driver) wake();
    if (forking_ > 0) std::this_thread::yield();
  }
  if (work.done()) return;
  // Another caller that drives may take this wake-up for itself. When it leaves, it finds that the
  // call is unattended, and wakes the progress thread.
  work.caller_left();
  wake();
}

void Driver::drive(std::unique_lock<std::mutex>& lock, const detail::WorkState* work,
                   Clock::time_point deadline) {
  driven_.disarm();  // this thread polls now, so neighbours need not wake the driver
  const std::chrono::microseconds longest_spin = work ? spin() : spin_ / kBrief;
  Clock::time_point idle_since = Clock::now();
  while (!stopping_) {
    caller_drives_.store(work != nullptr, std::memory_order_relaxed);
    const bool moved = driven_.pass();
    if (driven_.callbacks_wait() && !driven_.run_callbacks(lock)) return;
    if (work ? work->done() : !driven_.has_calls()) return;
    const Clock::time_point now = Clock::now();
    if (now >= deadline || forking_.load(std::memory_order_relaxed) > 0) return;
    const bool gives_way = !work && callers_waiting_.load(std::memory_order_relaxed) > 0;
    const Clock::duration idle = now - idle_since;
    if (moved) {
      idle_since = now;
    } else if (gives_way || (!work && idle >= longest_spin)) {
      return;
    } else if (idle < longest_spin) {
      const bool pauses = !crowded_ && idle < kPause;
      pauses ? pause_core() : std::this_thread::yield();
    } else if (fall_asleep()) {
      sleep(deadline);
    }
  }
}

bool Driver::drive_until_idle(Sleep& sleep) {
  std::unique_lock lock(mutex_);
  wake_pipe_.drain();
  driven_.has_slept(true, Clock::now());
  do {
    if (!lock) lock.lock();
    drive(lock, nullptr, Clock::time_point::max());
  } while (!stopping_ && (!lock || !fall_asleep()));
  if (stopping_) return false;
  prepare(sleep, Clock::time_point::max());
  return true;
}

/// Asks neighbours to wake the driver, and makes one more pass, because they may have sent data
/// before they were asked. Returns true if the driver may sleep, and false if the pass made
/// progress.
bool Driver::fall_asleep() {
  if (!driven_.arm() || !driven_.pass()) return true;
  driven_.disarm();
  return false;
}

/// If there is no memory for the list of descriptors, limits the sleep to kNapWithoutMemory, after
/// which the driver tries again.
void Driver::prepare(Sleep& sleep, Clock::time_point deadline) {
  try {
    sleep.beside_end = 1;
    sleep.watched.assign(1, {wake_pipe_.descriptor(), POLLIN, 0});
    sleep.until = deadline;
    driven_.prepare(sleep);
  } catch (const std::bad_alloc&) {
    sleep.until = std::min(deadline, Clock::now() + kNapWithoutMemory);
  }
}

/// Sleeps with the progress lock held. A thread that needs the lock wakes the driver through the
/// pipe.
void Driver::sleep(Clock::time_point deadline) {
  prepare(sleep_, deadline);
  const int ready = ::poll(sleep_.watched.data(), sleep_.watched.size(), sleep_.timeout_ms());
  driven_.has_slept(ready > 0 && sleep_.beside_data(), Clock::now());
  wake_pipe_.drain();
  driven_.disarm();
}

void Driver::make_way() {
  ++forking_;
  wake();
  mutex_.lock();
}

bool Driver::try_make_way(Clock::time_point deadline) {
  ++forking_;
  wake();
  while (!mutex_.try_lock()) {
    if (Clock::now() >= deadline) {
      --forking_;
      wake();
      return false;
    }
    std::this_thread::sleep_for(kBetweenTries);
  }
  return true;
}

void Driver::go_on() {
  mutex_.unlock();
  --forking_;
  wake();
}

}  // namespace mccl::engine
