// Decides how long the host pauses between two polls for the end of a device's work. The device
// reports the end only by a write to memory, so the host must poll.
#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/clock.h"

namespace mccl::staged {

/// Polls without a pause for 100 us. Then sleeps between polls for a sixteenth of the time waited
/// so far, at least 20 us and at most 500 us. A long wait thus costs little CPU time, and the host
/// notices the end of the work with little delay.
class PollBackoff {
 public:
  bool naps() const { return Clock::now() - since_ >= kAtOnce; }
  Clock::duration nap() const {
    return std::clamp<Clock::duration>((Clock::now() - since_) / 16, kLeast, kMost);
  }
  void pause() const {
    if (naps()) {
      std::this_thread::sleep_for(nap());
    } else {
      std::this_thread::yield();
    }
  }

 private:
  static constexpr std::chrono::microseconds kAtOnce{100};
  static constexpr std::chrono::microseconds kLeast{20};
  static constexpr std::chrono::microseconds kMost{500};
  Clock::time_point since_ = Clock::now();
};

/// A call for which the host has nothing more to do, although its device may still be working.
class Returning {
 public:
  virtual ~Returning() = default;

  /// Ends the call if the device has finished. Returns true if the call has ended.
  virtual bool try_finish() = 0;
  /// Polls until the call has ended. Used if no other thread polls it.
  void finish_alone() {
    for (const PollBackoff backoff; !try_finish();) backoff.pause();
  }
};

}  // namespace mccl::staged
