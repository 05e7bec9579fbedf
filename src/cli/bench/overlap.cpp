#include "cli/bench/overlap.h"

#include <algorithm>
#include <limits>

#include "base/clock.h"

namespace mccl::cli::bench {
namespace {

/// Not blocking: the engine's threads advance the call while the caller computes.
const CallOptions kInBackground = {};

/// Each step needs the result of the one before, so that a compiler cannot shorten the loop.
void compute(std::uint64_t steps) {
  volatile double result = 1;
  double value = result;
  for (std::uint64_t i = 0; i < steps; ++i) value = value * 0.999999 + 1e-6;
  result = value;
}

/// Returns the time of a step, in microseconds: the smallest of several attempts, because other
/// processes may take the core for a while.
double step_us() {
  constexpr std::uint64_t kSteps = 20'000;
  constexpr int kAttempts = 20;
  double least = std::numeric_limits<double>::max();
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const Clock::time_point begin = Clock::now();
    compute(kSteps);
    least = std::min(least, seconds_between(begin, Clock::now()));
  }
  return least * 1e6 / kSteps;
}

}  // namespace

double Overlap::hidden() const {
  const double shorter = std::min(call_us, compute_us);
  return shorter > 0 ? (call_us + compute_us - both_us) / shorter : 0;
}

Computation::Computation(double us) : steps_(static_cast<std::uint64_t>(us / step_us())) {}

void Computation::run() const { compute(steps_); }

Overlap measure_overlap(Group& group, const Trial& trial, double call_us, const Options& options) {
  const Computation computation(call_us);
  const auto time_of = [&](const std::function<void()>& what) {
    return measure(group, what, options).time_us;
  };
  return {.call_us = call_us,
          .compute_us = time_of([&] { computation.run(); }),
          .both_us = time_of([&] {
            const Work work = trial.start(kInBackground);
            computation.run();
            work.wait();
          })};
}

}  // namespace mccl::cli::bench
