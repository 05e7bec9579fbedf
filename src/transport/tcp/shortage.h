// A system that has no memory left for what is sent: macOS says so (ENOBUFS) instead of letting the
// sender wait, and still calls the socket writable. Who waited for that would spin.
#pragma once

#include <algorithm>
#include <chrono>

#include "base/clock.h"

namespace mccl::transport::tcp {

/// What one socket does about it: nothing for a while, and then it tries again.
class Shortage {
 public:
  /// A write was refused. True the first time since writes went through.
  bool refused(Clock::time_point now) {
    const bool is_new = !lasts();
    pause_ = is_new ? kFirstPause : std::min(2 * pause_, kLongestPause);
    until_ = now + pause_;
    return is_new;
  }

  /// A write went through, or the socket is full, which poll can tell.
  void over() {
    pause_ = {};
    until_ = Clock::time_point::max();
  }

  /// When to try again; the end of time where nothing is short.
  Clock::time_point retry_at() const { return until_; }
  bool lasts() const { return pause_ != Clock::duration::zero(); }

 private:
  static constexpr Clock::duration kFirstPause = std::chrono::milliseconds(1);
  static constexpr Clock::duration kLongestPause = std::chrono::milliseconds(16);

  Clock::duration pause_{};
  Clock::time_point until_ = Clock::time_point::max();
};

}  // namespace mccl::transport::tcp
