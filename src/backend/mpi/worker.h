// A thread that makes the calls of one group for which MPI is to wait.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

namespace mccl::mpi {

/// The thread ends when the worker does, or whenever MPI lets go of it: nobody waits for it.
class Worker {
 public:
  Worker();
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// Jobs run in this order. Each is given the flag that is_out() reads.
  void take(std::function<void(std::atomic<bool>& out)> job);
  /// Whether the job says that nobody should wait for its end.
  bool is_out() const;

 private:
  struct Jobs;
  const std::shared_ptr<Jobs> jobs_;
};

}  // namespace mccl::mpi
