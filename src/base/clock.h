#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace mccl {

using Clock = std::chrono::steady_clock;

inline std::int64_t nanoseconds_of(Clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

/// The value of a counter that advances at a constant rate and is cheaper to read than Clock.
inline std::int64_t cycle_count() {
#if defined(__x86_64__)
  return static_cast<std::int64_t>(__rdtsc());
#elif defined(__aarch64__)
  std::int64_t count = 0;
  asm volatile("mrs %0, cntvct_el0" : "=r"(count));
  return count;
#else
  return nanoseconds_of(Clock::now());
#endif
}

inline double seconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

/// The duration in milliseconds, rounded down.
inline std::chrono::milliseconds milliseconds_of(double seconds) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::duration<double>(seconds));
}

/// The time until a deadline in milliseconds, rounded up; 1 ms if the deadline has passed.
inline std::chrono::milliseconds left_until(Clock::time_point deadline) {
  using std::chrono::milliseconds;
  return std::max(milliseconds(1), std::chrono::ceil<milliseconds>(deadline - Clock::now()));
}

/// A timeout for poll(2), in milliseconds; -1 means no timeout. It is rounded up, so that poll does
/// not return just before the deadline.
inline int milliseconds_until(Clock::time_point deadline) {
  if (deadline == Clock::time_point::max()) return -1;
  const Clock::time_point now = Clock::now();
  if (deadline <= now) return 0;  // The difference from time_point::min() would overflow.
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - now).count();
  return static_cast<int>(std::min<long long>(left, 1 << 30));
}

/// Adds the duration of a scope, in seconds, to a sum. Does nothing if `on` is false.
class ScopedTimer {
 public:
  explicit ScopedTimer(double& seconds, bool on = true) : seconds_(on ? &seconds : nullptr) {
    if (seconds_) begin_ = Clock::now();
  }
  ~ScopedTimer() {
    if (seconds_) *seconds_ += seconds_between(begin_, Clock::now());
  }
  ScopedTimer(const ScopedTimer&) = delete;
  ScopedTimer& operator=(const ScopedTimer&) = delete;

 private:
  double* seconds_;
  Clock::time_point begin_;
};

}  // namespace mccl
