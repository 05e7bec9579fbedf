// The calls that MLX's streams have been given and have not ended: a program may end before they
// do.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>

namespace mccl_mlx {

/// Thread-safe. A process has one, which is never destroyed: streams may outlive everything.
class PendingCalls {
 public:
  static PendingCalls& of_process();

  /// A call is pending for as long as a copy of this lives.
  using Ticket = std::shared_ptr<PendingCalls>;
  Ticket begin();

  /// False where that takes longer.
  bool wait_until_none(std::chrono::milliseconds patience);

 private:
  void end();

  std::mutex mutex_;
  std::condition_variable ended_;
  std::size_t count_ = 0;  // guarded by mutex_
};

}  // namespace mccl_mlx
