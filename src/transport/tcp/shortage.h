// Handles a system that has no memory left for sending. macOS reports this as ENOBUFS instead of
// letting the sender wait, and still reports the socket as writable. A sender that polls for
// writability would spin.
#pragma once

#include <algorithm>
#include <chrono>

#include "base/clock.h"

namespace mccl::transport::tcp {

/// Backoff of one socket: pauses writes for 1 to 16 ms, then retries.
class Shortage {
 public:
  /// Records that a write was refused. Returns true if the previous write was not.
  bool refused(Clock::time_point now) {
    const bool is_new = !lasts();
    pause_ = is_new ? kFirstPause : std::min(2 * pause_, kLongestPause);
    until_ = now + pause_;
    return is_new;
  }

  /// Records that a write succeeded, or that the socket is full, which poll can report.
  void over() {
    pause_ = {};
    until_ = Clock::time_point::max();
  }

  /// When to retry; Clock::time_point::max() if there is no shortage.
  Clock::time_point retry_at() const { return until_; }
  bool lasts() const { return pause_ != Clock::duration::zero(); }

 private:
  static constexpr Clock::duration kFirstPause = std::chrono::milliseconds(1);
  static constexpr Clock::duration kLongestPause = std::chrono::milliseconds(16);

  Clock::duration pause_{};
  Clock::time_point until_ = Clock::time_point::max();
};

}  // namespace mccl::transport::tcp
