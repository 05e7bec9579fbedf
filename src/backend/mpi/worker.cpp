#include "backend/mpi/worker.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>

#include "base/thread.h"

namespace mccl::mpi {

/// Shared with the thread, which may outlive the worker.
struct Worker::Jobs {
  using Job = std::function<void(std::atomic<bool>&)>;

  std::mutex mutex;
  std::condition_variable changed;  // with mutex
  std::deque<Job> queue;            // guarded by mutex
  bool over = false;                // guarded by mutex
  std::atomic<bool> out = false;

  void work() {
    for (;;) {
      Job job;
      {
        std::unique_lock lock(mutex);
        changed.wait(lock, [this] { return over || !queue.empty(); });
        if (over) return;
        job = std::move(queue.front());
        queue.pop_front();
      }
      job(out);
    }
  }
};

Worker::Worker() : jobs_(std::make_shared<Jobs>()) {
  start_thread("mccl-mpi-bulk", [jobs = jobs_] { jobs->work(); }).detach();
}

Worker::~Worker() {
  const std::lock_guard lock(jobs_->mutex);
  jobs_->over = true;
  jobs_->changed.notify_all();
}

bool Worker::is_out() const { return jobs_->out; }

void Worker::take(std::function<void(std::atomic<bool>& out)> job) {
  const std::lock_guard lock(jobs_->mutex);
  jobs_->queue.push_back(std::move(job));
  jobs_->changed.notify_all();
}

}  // namespace mccl::mpi
