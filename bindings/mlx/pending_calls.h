// Counts the unfinished calls in MLX's streams, which may still run when the program ends.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>

namespace mccl_mlx {

/// Counter of pending calls. Thread-safe. A process has one instance, which is never destroyed
/// because streams may outlive static destructors.
class PendingCalls {
 public:
  static PendingCalls& of_process();

  /// A call is pending as long as a copy of its ticket lives.
  using Ticket = std::shared_ptr<PendingCalls>;
  Ticket begin();

  /// Blocks until no call is pending, for at most `patience`. Returns false if calls are still
  /// pending.
  bool wait_until_none(std::chrono::milliseconds patience);

 private:
  void end();

  std::mutex mutex_;
  std::condition_variable ended_;
  std::size_t count_ = 0;  // guarded by mutex_
};

}  // namespace mccl_mlx
