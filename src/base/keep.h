// Keeps objects alive until the process ends, because a device, or a thread that hangs in another
// library, may still use them.
#pragma once

#include <atomic>
#include <utility>

namespace mccl {

/// Keeps `thing` alive until the process ends. Thread-safe. Throws std::bad_alloc if there is no
/// memory. In a destructor, that exception ends the process, which is better than letting a device
/// write into reused memory. Debuggers and leak checkers find the objects through `first`.
template <typename T>
void keep_for_ever(T thing) {
  struct Kept {
    T thing;
    Kept* next;
  };
  static std::atomic<Kept*> first{nullptr};
  Kept* const kept = new Kept{std::move(thing), first.load()};
  while (!first.compare_exchange_weak(kept->next, kept)) {
  }
}

}  // namespace mccl
