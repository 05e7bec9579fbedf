#include "backend/mpi/worker.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "base/thread.h"

namespace mccl::mpi {

/// Shared with the thread, which may outlive the worker.
struct Worker::Jobs {
  std::mutex mutex;
  std::condition_variable changed;               // used with mutex
  std::deque<std::packaged_task<void()>> queue;  // guarded by mutex
  bool over = false;                             // guarded by mutex
  std::thread::id thread;

  void work() {
    for (;;) {
      std::packaged_task<void()> job;
      {
        std::unique_lock lock(mutex);
        changed.wait(lock, [this] { return over || !queue.empty(); });
        if (over) return;
        job = std::move(queue.front());
        queue.pop_front();
      }
      job();
    }
  }
};

Worker::Worker(const std::string& name) : jobs_(std::make_shared<Jobs>()) {
  std::thread thread = start_thread(name, [jobs = jobs_] { jobs->work(); });
  jobs_->thread = thread.get_id();
  thread.detach();
}

Worker::~Worker() {
  const std::lock_guard lock(jobs_->mutex);
  jobs_->over = true;
  jobs_->changed.notify_all();
}

std::future<void> Worker::take(std::function<void()> job) {
  const std::lock_guard lock(jobs_->mutex);
  std::future<void> done = jobs_->queue.emplace_back(std::move(job)).get_future();
  jobs_->changed.notify_all();
  return done;
}

bool Worker::is_this_thread() const { return std::this_thread::get_id() == jobs_->thread; }

}  // namespace mccl::mpi
