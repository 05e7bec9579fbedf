// Wakes a thread that waits in poll(2). Another process that has the writing end can also wake the
// thread.
// Uses a pair of sockets, because writing to a pipe without a reader raises a signal.
#pragma once

#include <atomic>

#include "base/descriptor.h"

namespace mccl {

/// wake() may be called on any thread, drain() only on the thread that polls.
class WakePipe {
 public:
  WakePipe();

  void wake();
  void drain();
  int descriptor() const { return read_end_.get(); }
  int writing_end() const { return write_end_.get(); }
  /// Closes both ends. Called in the child after a fork().
  void abandon() noexcept;

 private:
  Descriptor read_end_;
  Descriptor write_end_;
  /// True if wake() in this process has written a byte since the last drain().
  std::atomic<bool> pending_{false};
};

}  // namespace mccl
