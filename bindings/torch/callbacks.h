// Threads that run the user's callbacks.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>

namespace mccl_torch {

/// Runs tasks that may block on another collective, such as a communication hook that chains
/// collectives. Such tasks must not run on the engine's progress thread, which that collective
/// needs. A task starts immediately, on an idle thread or a new thread. A thread that stays idle
/// for 10 s ends.
class CallbackThreads {
 public:
  void run(std::function<void()> task);

  /// Blocks until all tasks are done, for at most `timeout`. Returns true if they are done.
  bool drain(std::chrono::milliseconds timeout);

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable drained_;
  std::deque<std::function<void()>> tasks_;
  std::size_t idle_ = 0;
  std::size_t running_ = 0;
};

/// The process-wide instance. Never destroyed, because detached threads may outlast static
/// destructors.
CallbackThreads& callback_threads();

}  // namespace mccl_torch
