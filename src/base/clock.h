#pragma once

#include <chrono>

namespace mccl {

using Clock = std::chrono::steady_clock;

inline double seconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

/// Rounds down to whole milliseconds.
inline std::chrono::milliseconds milliseconds_of(double seconds) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::duration<double>(seconds));
}

/// Adds the duration of a scope, in seconds, to a sum.
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
