// Waking another process of the node. Who is about to sleep says so in its arena and then looks
// once more for what it waits for; who has done something looks whether the other sleeps. One of
// the two always sees the other.
#pragma once

#include <sys/socket.h>

#include <atomic>

#include "base/no_signal.h"
#include "node/arena.h"

namespace mccl::node {

/// The sleeper's side.
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

/// The side of whoever wakes it: `socket` is one end of a pair, of which the sleeper polls the
/// other. Thread-safe.
class Bell {
 public:
  Bell(ArenaHeader& header, int socket) : header_(&header), socket_(socket) {}

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
    // A process that died asleep must not take this one along with a SIGPIPE.
    const char byte = 1;
    static_cast<void>(::send(socket_, &byte, 1, kNoSignal | MSG_DONTWAIT) ==
                      1);  // a full one wakes as well
  }

  ArenaHeader* header_;
  int socket_;
};

}  // namespace mccl::node
