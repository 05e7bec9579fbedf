// Adds the duration of a scope, in seconds, to a sum.
#pragma once

#include "base/clock.h"

namespace mccl {

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
