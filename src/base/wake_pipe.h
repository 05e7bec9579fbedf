// Ends a poll(2) of another thread, or of this one by another process that has the writing end. A
// pair of sockets, because writing to a pipe that nobody reads any more raises a signal.
#pragma once

#include <atomic>

namespace mccl {

/// wake() from any thread; drain() from the one that was woken.
class WakePipe {
 public:
  WakePipe();
  ~WakePipe();
  WakePipe(const WakePipe&) = delete;
  WakePipe& operator=(const WakePipe&) = delete;

  void wake();
  void drain();
  int descriptor() const { return read_end_; }
  int writing_end() const { return write_end_; }
  /// For the child of a fork.
  void abandon() noexcept;

 private:
  int read_end_ = -1;
  int write_end_ = -1;
  std::atomic<bool> pending_{false};  ///< Of this process's own.
};

}  // namespace mccl
