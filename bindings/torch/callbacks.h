// Threads for callbacks of the user's.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>

namespace mccl_torch {

/// Runs tasks that may block on another collective, as a communication hook does that chains one to
/// the end of another: never the engine's progress thread, which that collective needs. A task
/// starts at once, on an idle thread or on a new one; a thread that stays idle ends.
class CallbackThreads {
 public:
  void run(std::function<void()> task);

  /// Whether everything that was started is over within `timeout`.
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

/// Lives until the process ends: threads that are detached may outlast static destructors.
CallbackThreads& callback_threads();

}  // namespace mccl_torch
