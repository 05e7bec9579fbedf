// What other threads hand to the one that drives.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "engine/calls/operation.h"

namespace mccl::engine {

/// Thread-safe; its lock is held for a few instructions.
class Inbox {
 public:
  struct Content {
    std::vector<std::shared_ptr<GroupState>> created;
    std::vector<std::shared_ptr<Operation>> submitted;
    std::vector<std::shared_ptr<GroupState>> aborted;
    std::vector<std::shared_ptr<GroupState>> closed;
  };

  /// Calls `fill` with the content.
  template <typename Fill>
  void put(Fill fill) {
    std::lock_guard lock(mutex_);
    fill(content_);
    waiting_.store(true, std::memory_order_release);
  }
  bool waiting() const { return waiting_.load(std::memory_order_acquire); }
  Content take() {
    std::lock_guard lock(mutex_);
    waiting_.store(false, std::memory_order_relaxed);
    return std::exchange(content_, {});
  }

  /// For a fork, and for what must be whole at one.
  std::mutex& mutex() { return mutex_; }

 private:
  std::mutex mutex_;
  Content content_;  // guarded by mutex_
  std::atomic<bool> waiting_{false};
};

}  // namespace mccl::engine
