// Measures how much of a call is hidden behind a computation that runs at the same time.
#pragma once

#include <cstdint>

#include "cli/bench/trial.h"

namespace mccl::cli::bench {

/// Times in microseconds, means on the slowest rank.
struct Overlap {
  double call_us = 0;     ///< The call alone.
  double compute_us = 0;  ///< A computation of about the same length, alone.
  double both_us = 0;  ///< The call is started, then the computation runs, then the caller waits.

  /// Share of the shorter of the two that costs no time: 1 if both take as long as the longer one,
  /// 0 if they take as long as one after the other, below 0 if they take longer.
  double hidden() const;
};

/// Arithmetic on registers, whose speed does not depend on memory or on other processes' caches.
class Computation {
 public:
  /// A computation of about `us` microseconds on this processor.
  explicit Computation(double us);
  void run() const;

 private:
  std::uint64_t steps_ = 0;
};

/// Measures a trial whose call takes `call_us` alone. Every rank must call this.
Overlap measure_overlap(Group& group, const Trial& trial, double call_us, const Options& options);

}  // namespace mccl::cli::bench
