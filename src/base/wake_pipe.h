// Ends a poll(2) of another thread. A different process that has the writing end can do so too.
// Uses a pair of sockets, because writing to a pipe without a reader raises a signal.
#pragma once

#include <atomic>

#include "base/descriptor.h"

namespace mccl {

/// wake() may be called on any thread, drain() on the thread that was woken.
class WakePipe {
 public:
  WakePipe();

  void wake();
  void drain();
  int descriptor() const { return read_end_.get(); }
  int writing_end() const { return write_end_.get(); }
  /// Closes both ends, in the child of a fork.
  void abandon() noexcept;

 private:
  Descriptor read_end_;
  Descriptor write_end_;
  /// This process's wake() has written a byte since the last drain().
  std::atomic<bool> pending_{false};
};

}  // namespace mccl
