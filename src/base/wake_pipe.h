// Ends a poll(2) of another thread, or of this one by another process that has the writing end. A
// pair of sockets, because writing to a pipe that nobody reads any more raises a signal.
#pragma once

#include <atomic>

#include "base/descriptor.h"

namespace mccl {

/// wake() from any thread; drain() from the one that was woken.
class WakePipe {
 public:
  WakePipe();

  void wake();
  void drain();
  int descriptor() const { return read_end_.get(); }
  int writing_end() const { return write_end_.get(); }
  /// For the child of a fork.
  void abandon() noexcept;

 private:
  Descriptor read_end_;
  Descriptor write_end_;
  std::atomic<bool> pending_{false};  ///< Of this process's own.
};

}  // namespace mccl
