// Waking another process of the node. Who is about to sleep says so in its arena and then looks
// once more for what it waits for; who has done something looks whether the other sleeps. One of
// the two always sees the other.
#pragma once

#include <unistd.h>

#include <atomic>

#include "transport/shm/arena.h"

namespace mccl::transport::shm {

/// The sleeper's side. `pipe` in Bell is a pipe that it polls while it sleeps.
class Sleeper {
 public:
  explicit Sleeper(ArenaHeader& header) : header_(header) {}

  /// After this, look once more before sleeping.
  void fall_asleep() {
    header_.asleep.store(1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  void wake_up() {
    if (header_.asleep.load(std::memory_order_relaxed) != 0) {
      header_.asleep.store(0, std::memory_order_relaxed);
    }
  }

 private:
  ArenaHeader& header_;
};

/// The side of whoever wakes it. Thread-safe.
class Bell {
 public:
  Bell(ArenaHeader& header, int pipe) : header_(&header), pipe_(pipe) {}

  /// What was stored before it is seen by the sleeper, or the sleeper is woken.
  void ring() const {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    ring_after_fence();
  }
  /// For several bells in a row, after one fence of the caller's.
  void ring_after_fence() const {
    if (header_->asleep.load(std::memory_order_relaxed) != 0) wake();
  }

 private:
  void wake() const {
    if (header_->asleep.exchange(0, std::memory_order_relaxed) == 0) return;
    const char byte = 1;
    static_cast<void>(::write(pipe_, &byte, 1) == 1);  // a full pipe wakes as well
  }

  ArenaHeader* header_;
  int pipe_;
};

}  // namespace mccl::transport::shm
