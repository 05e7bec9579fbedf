// Wakes another process of the node. A process that is about to sleep sets a flag in its arena, and
// then checks once more for the event that it waits for. A process that causes an event checks the
// flag afterwards. At least one of the two therefore sees what the other did.
#pragma once

#include <sys/socket.h>

#include <atomic>

#include "base/no_signal.h"
#include "node/arena.h"

namespace mccl::node {

/// The side of a bell that the sleeping process uses.
class Sleeper {
 public:
  explicit Sleeper(ArenaHeader& header) : header_(header) {}

  /// Announces that this process is about to sleep. The caller must then check for events once more
  /// before it sleeps.
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

/// The waking side. `socket` is one end of a socket pair; the sleeper polls the other end.
/// Thread-safe.
class Bell {
 public:
  Bell(ArenaHeader& header, int socket) : header_(&header), socket_(socket) {}

  /// Wakes the sleeper if it sleeps. Otherwise the sleeper sees everything that was stored before
  /// this call.
  void ring() const {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    ring_after_fence();
  }
  /// Rings without the fence: the caller has issued one fence for several bells.
  void ring_after_fence() const {
    if (header_->asleep.load(std::memory_order_relaxed) != 0) wake();
  }

 private:
  void wake() const {
    if (header_->asleep.exchange(0, std::memory_order_relaxed) == 0) return;
    // If the sleeper has died, send() without kNoSignal would end this process with SIGPIPE.
    const char byte = 1;
    static_cast<void>(::send(socket_, &byte, 1, kNoSignal | MSG_DONTWAIT) ==
                      1);  // a full socket wakes the sleeper as well
  }

  ArenaHeader* header_;
  int socket_;
};

}  // namespace mccl::node
