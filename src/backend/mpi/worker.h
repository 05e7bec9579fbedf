// A thread that makes MPI calls which the caller's thread may not make, or must not wait for.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <string>

namespace mccl::mpi {

/// The destructor does not wait for the thread, which may be blocked in MPI. The thread ends after
/// its current job and drops all queued ones.
class Worker {
 public:
  explicit Worker(const std::string& name);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// Queues a job. Jobs run in the order of these calls. The future rethrows the job's exception.
  std::future<void> take(std::function<void()> job);
  bool is_this_thread() const;

 private:
  struct Jobs;
  const std::shared_ptr<Jobs> jobs_;
};

}  // namespace mccl::mpi
