// What is never let go of, since a device, or a thread that hangs in another library, may still use
// it.
#pragma once

#include <atomic>
#include <utility>

namespace mccl {

/// Thread-safe. Throws std::bad_alloc; in a destructor the process ends then, rather than have a
/// device write where somebody else is. Debuggers and checkers of leaks find it from here.
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
