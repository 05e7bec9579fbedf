// A thread that calls MPI where the caller's may not, or must not wait.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <string>

namespace mccl::mpi {

/// The thread ends some time after the worker does: MPI may not let go of it.
class Worker {
 public:
  explicit Worker(const std::string& name);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// Jobs run in this order. The future has what the job throws.
  std::future<void> take(std::function<void()> job);
  bool is_this_thread() const;

 private:
  struct Jobs;
  const std::shared_ptr<Jobs> jobs_;
};

}  // namespace mccl::mpi
