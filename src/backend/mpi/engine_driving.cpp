// Who drives: the engine's thread, or a caller that waits.
#include <algorithm>
#include <utility>

#include "backend/mpi/engine.h"

namespace mccl::mpi {
namespace {

constexpr std::chrono::microseconds kLongestNap{100};
/// So many looks at MPI before the time, which costs more than one of them.
constexpr int kLooksAtOnce = 32;
/// So long do others leave the core to threads of groups on which MPI waits.
constexpr std::chrono::milliseconds kWhileOthersWork{100};

void yield_or_nap(Clock::duration idle, std::chrono::microseconds spin, bool may_nap) {
  if (idle < spin) return;
  if (!may_nap || idle < 20 * spin) return std::this_thread::yield();
  std::this_thread::sleep_for(std::min<Clock::duration>(idle / 16, kLongestNap));
}

}  // namespace

void Engine::work() {
  Clock::time_point moved = Clock::now();
  for (;;) {
    {
      std::unique_lock lock(inbox_mutex_);
      const auto wanted = [this] {
        return stopping_ || (has_work() && (helpers_ == 0 || !callers_drive_)) || asked_;
      };
      if (!wanted()) {
        wake_.wait(lock, wanted);
        moved = Clock::now();
      }
      if (stopping_) return;
    }
    bool has_moved = false;
    Callbacks callbacks;
    {
      const std::lock_guard lock(driving_);
      run_errands();
      has_moved = pass();
      callbacks = take_callbacks();
    }
    run_callbacks(std::move(callbacks));
    const Clock::time_point now = Clock::now();
    if (has_moved) moved = now;
    if (working_ > 0 && working_ == pending_) {
      std::unique_lock lock(inbox_mutex_);
      wake_.wait_for(lock, kWhileOthersWork, [this] { return stopping_ || has_inbox_ || asked_; });
    } else {
      yield_or_nap(now - moved, spin_, callers_drive_ || helpers_ == 0);
    }
  }
}

/// Who waits for a thread of a group takes no time from it. What comes meanwhile is the engine's
/// thread's.
void Engine::sleep_beside_worker(Call& call, Clock::time_point deadline, Clock::time_point now) {
  const bool is_alone = working_ == pending_;
  if (is_alone && --helpers_ == 0 && working_ != pending_) wake();  // it came just now
  call.sleep_until_done(std::min(
      deadline, now + (is_alone ? std::chrono::microseconds(kWhileOthersWork) : kLongestNap)));
  if (is_alone) ++helpers_;
}

/// The engine at its end, on its own thread. What is called afterwards comes from whoever is left.
void Engine::retire(const std::function<void()>& last) {
  const std::lock_guard lock(driving_);
  last();
  std::vector<std::function<void()>> errands;
  {
    const std::lock_guard inbox_lock(inbox_mutex_);
    if (reason_over_.empty()) reason_over_ = "MPI is not called any more, since the process ends";
    callers_drive_ = true;
    errands.swap(errands_);
  }
  over_.store(true, std::memory_order_release);
  for (const auto& errand : errands) errand();
}

void Engine::help(Call& call, Clock::time_point deadline) {
  struct Helper {
    explicit Helper(Engine& its_engine) : engine(its_engine) { ++engine.helpers_; }
    ~Helper() {
      if (--engine.helpers_ == 0 && engine.has_work()) engine.wake();
    }
    Engine& engine;
  };
  const Helper helper(*this);
  Clock::time_point moved = Clock::now();
  for (Clock::time_point now = moved; !call.done() && now < deadline; now = Clock::now()) {
    // A callback that waits does so on the engine's own thread, which drives then too.
    if (!callers_drive_ && std::this_thread::get_id() != thread_id_) {
      wake();
      call.sleep_until_done(deadline);
      break;
    }
    if (call.working) {
      sleep_beside_worker(call, deadline, now);
      if (call.done()) break;
    }
    Callbacks callbacks;
    bool has_moved = false;
    if (std::unique_lock lock(driving_, std::try_to_lock); lock) {
      for (int look = 0; look < kLooksAtOnce && !has_moved && !call.done(); ++look)
        has_moved = pass();
      callbacks = take_callbacks();
    } else {
      call.sleep_until_done(std::min(deadline, now + kLongestNap));
      continue;
    }
    run_callbacks(std::move(callbacks));
    if (has_moved) moved = now;
    yield_or_nap(now - moved, spin_, now - moved > std::chrono::milliseconds(100));
  }
}

}  // namespace mccl::mpi
