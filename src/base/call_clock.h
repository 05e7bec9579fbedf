// Decides which small calls have times in the flight record. Reading the cycle counter takes at
// most 10 ns on most machines, but more than 20 ns in some virtual machines. There, reading it for
// every small call would make these calls 5 to 13 % slower.
#pragma once

#include <ctime>

#include "base/clock.h"

namespace mccl {

/// Not thread-safe.
class CallClock {
 public:
  /// Measures how long reading the cycle counter takes.
  CallClock() : is_fast_(read_time_ns() <= kFastReadNs) {}
  /// Tests choose whether the object treats the cycle counter as fast to read.
  explicit CallClock(bool is_fast) : is_fast_(is_fast) {}

  /// Returns cycle_count() if reading it is fast, if `is_due`, or if the system's coarse clock has
  /// ticked (every 1 to 10 ms) since this function last read the counter. Otherwise returns 0: the
  /// call follows another one closely, and has no times.
  std::int64_t sparse_count(bool is_due) {
#ifdef CLOCK_MONOTONIC_COARSE
    if (!is_fast_) {
      timespec now = {};
      ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
      if (!is_due && now.tv_nsec == tick_.tv_nsec && now.tv_sec == tick_.tv_sec) return 0;
      tick_ = now;
    }
#endif
    return cycle_count();
  }

 private:
  static constexpr std::int64_t kFastReadNs = 14;

  /// Returns the shortest of several measurements, because the thread may be interrupted.
  static std::int64_t read_time_ns() {
    constexpr int kReads = 64;
    std::int64_t least = kFastReadNs * kReads * 100;
    for (int trial = 0; trial < 5; ++trial) {
      const std::int64_t begin = nanoseconds_of(Clock::now());
      for (int i = 0; i < kReads; ++i) static_cast<void>(cycle_count());
      least = std::min(least, nanoseconds_of(Clock::now()) - begin);
    }
    return least / kReads;
  }

  bool is_fast_;
  timespec tick_ = {};  ///< Value of the coarse clock when sparse_count() last read the counter.
};

}  // namespace mccl
