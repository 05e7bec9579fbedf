// Decides which small calls have times in the flight record. Reading the cycle counter takes at
// most 10 ns on most machines, but more than 20 ns in some virtual machines. There, reading it for
// every small call would make these calls 5 to 13 % slower.
#pragma once

#include <algorithm>
#include <cstdint>
#include <ctime>

#include "base/clock.h"

namespace mccl {

/// Not thread-safe.
class CallClock {
 public:
  /// On a machine whose cycle counter is slow to read, one in kTimedEvery small calls has times.
  static constexpr std::uint64_t kTimedEvery = 16;

  /// Measures how long reading the cycle counter takes.
  CallClock() : is_fast_(read_time_ns() <= kFastReadNs) {}
  /// Tests choose whether the object treats the cycle counter as fast to read.
  explicit CallClock(bool is_fast) : is_fast_(is_fast) {}

  /// Returns cycle_count() when the collective `number` of a group begins, or 0 if it is to have no
  /// times. If reading the counter is slow, a call has times if its number is a multiple of
  /// kTimedEvery. It also has times if its number is a multiple of kTickEvery and the system's
  /// coarse clock has ticked (every 1 to 10 ms) since this function last read the counter.
  std::int64_t sparse_count([[maybe_unused]] std::uint64_t number) {
#ifdef CLOCK_MONOTONIC_COARSE
    if (!is_fast_) {
      if (number % kTickEvery != 0) return 0;
      timespec now = {};
      ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
      const bool has_ticked = now.tv_nsec != tick_.tv_nsec || now.tv_sec != tick_.tv_sec;
      if (!has_ticked && number % kTimedEvery != 0) return 0;
      tick_ = now;
    }
#endif
    return cycle_count();
  }

 private:
  static constexpr std::int64_t kFastReadNs = 14;
  /// Reading even the coarse clock takes 5 ns, too long for every call.
  static constexpr std::uint64_t kTickEvery = 4;

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
  /// Value of the coarse clock, if there is one, when sparse_count() last read the counter.
  [[maybe_unused]] timespec tick_ = {};
};

}  // namespace mccl
