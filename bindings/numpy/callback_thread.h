// A thread that runs Python code for the engine, whose own threads must never wait for the GIL.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace mccl::numpy {

/// One thread, started by the first task. Thread-safe.
class CallbackThread {
 public:
  using Task = std::function<void()>;

  /// Queues `task`, which runs with the GIL held and must not throw. Tasks run in the order of the
  /// calls of post(). May be called without the GIL.
  void post(Task task);

  /// Runs all posted tasks and ends the thread; a later post() starts it again. Call it without the
  /// GIL.
  void stop();
  /// True if the calling thread is this thread, which therefore cannot stop() itself.
  bool is_current() {
    const std::lock_guard lock(mutex_);
    return running_ == std::this_thread::get_id();
  }

 private:
  void start();
  void run();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Task> tasks_;   // guarded by mutex_
  std::thread thread_;       // guarded by mutex_
  std::thread::id running_;  // the thread, until it has ended; guarded by mutex_
  bool stopping_ = false;    // guarded by mutex_
};

/// callback_thread() returns the process's instance. forget_callback_thread_after_fork() replaces
/// it in a forked child, because the thread exists only in the parent.
CallbackThread& callback_thread();
void forget_callback_thread_after_fork();

}  // namespace mccl::numpy
