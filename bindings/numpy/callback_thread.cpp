#include "numpy/callback_thread.h"

#include <nanobind/nanobind.h>

#include <atomic>
#include <utility>

#include "base/thread.h"

namespace mccl::numpy {
namespace {

/// Never destroyed: the thread may outlive this module's static objects.
std::atomic<CallbackThread*> instance{new CallbackThread};

}  // namespace

void CallbackThread::post(Task task) {
  const std::lock_guard lock(mutex_);
  tasks_.push_back(std::move(task));
  if (!stopping_) start();
  wake_.notify_one();
}

/// A thread that starts while stopping_ is set would return at once, so post() starts none then. A
/// task that is posted after the last look of the ending thread gets a new thread here.
void CallbackThread::stop() {
  std::thread ending;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    ending = std::move(thread_);
    wake_.notify_one();
  }
  if (ending.joinable()) ending.join();
  const std::lock_guard lock(mutex_);
  stopping_ = false;
  running_ = {};
  if (!tasks_.empty()) start();
}

/// Starts the thread unless it runs. The caller must hold mutex_.
void CallbackThread::start() {
  if (thread_.joinable()) return;
  thread_ = start_thread("mccl callbacks", [this] { run(); });
  running_ = thread_.get_id();
}

void CallbackThread::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    const std::deque<Task> due = std::exchange(tasks_, {});
    lock.unlock();
    {
      const nanobind::gil_scoped_acquire gil;
      for (const Task& task : due) task();
    }
    lock.lock();
  }
}

CallbackThread& callback_thread() { return *instance.load(); }

void forget_callback_thread_after_fork() { instance = new CallbackThread; }

}  // namespace mccl::numpy
