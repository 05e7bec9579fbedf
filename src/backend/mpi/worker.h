// A thread that makes MPI calls which the caller's thread may not make, or in which the caller's
// thread must not block.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "base/thread.h"

namespace mccl::mpi {

/// One thread that runs jobs. The destructor does not wait for the thread, which may be blocked in
/// MPI. The thread ends after its current job and drops all queued jobs.
class Worker {
 public:
  explicit Worker(const std::string& name) {
    std::thread thread = start_thread(name, [jobs = jobs_] { jobs->work(); });
    thread_ = thread.get_id();
    thread.detach();
  }
  ~Worker() {
    const std::lock_guard lock(jobs_->mutex);
    jobs_->over = true;
    jobs_->changed.notify_all();
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// Queues a job. Jobs run in the order of these calls. The future rethrows the job's exception.
  std::future<void> take(std::function<void()> job) {
    const std::lock_guard lock(jobs_->mutex);
    std::future<void> done = jobs_->queue.emplace_back(std::move(job)).get_future();
    jobs_->changed.notify_all();
    return done;
  }
  bool is_this_thread() const { return std::this_thread::get_id() == thread_; }

 private:
  /// Shared with the thread, which may outlive the worker.
  struct Jobs {
    std::mutex mutex;
    std::condition_variable changed;               // signals changes of `queue` and `over`
    std::deque<std::packaged_task<void()>> queue;  // guarded by mutex
    bool over = false;                             // guarded by mutex

    void work() {
      for (std::unique_lock lock(mutex);;) {
        changed.wait(lock, [this] { return over || !queue.empty(); });
        if (over) return;
        std::packaged_task<void()> job = std::move(queue.front());
        queue.pop_front();
        lock.unlock();
        job();
        job = {};
        lock.lock();
      }
    }
  };

  const std::shared_ptr<Jobs> jobs_ = std::make_shared<Jobs>();
  std::thread::id thread_;
};

}  // namespace mccl::mpi
