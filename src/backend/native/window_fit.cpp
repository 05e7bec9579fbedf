#include "backend/native/window_fit.h"

#include <algorithm>

namespace mccl::native {

using schedule::Facts;

namespace {

/// Bounds on the results, in case other processes disturb the measurements. kLeastSeconds is the
/// minimum of a fitted time. kLeastTimesAsLong is the minimum ratio of the measured to the expected
/// time, so that a cache is at most 20 times as fast as assumed.
constexpr double kLeastSeconds = 1e-9;
constexpr double kLeastTimesAsLong = 0.05;

}  // namespace

WindowFit::WindowFit(const Facts& at_calls, int ranks, double ranks_per_core,
                     std::size_t small_bytes)
    : at_calls_(at_calls), facts_(at_calls), ranks_(ranks), small_bytes_(small_bytes) {
  facts_.ranks_per_core = ranks_per_core;
}

double WindowFit::cached_bytes_per_s(std::size_t bytes, double longer) const {
  const double at_bytes = predicted(Collective::all_reduce, bytes, facts_);
  const double expected = at_bytes - predicted(Collective::all_reduce, small_bytes_, facts_);
  Facts faster = facts_;
  faster.cached_bytes_per_s *= 2;
  if (predicted(Collective::all_reduce, bytes, faster) == at_bytes) return 0;
  return facts_.cached_bytes_per_s / std::max(kLeastTimesAsLong, longer / expected);
}

double WindowFit::solve(double Facts::*fact, Collective collective, double seconds) const {
  Facts facts = facts_;
  facts.*fact = 0;
  const double rest = predicted(collective, small_bytes_, facts);
  facts.*fact = 1;
  const double slope = predicted(collective, small_bytes_, facts) - rest;
  if (slope <= 0) return 0;
  return std::max(kLeastSeconds, (seconds - rest) / slope);
}

/// Predicts how many seconds a call takes with the algorithm that the measured calls used.
double WindowFit::predicted(Collective collective, std::size_t bytes, const Facts& facts) const {
  schedule::Problem problem;
  problem.collective = collective;
  problem.size = ranks_;
  problem.count = bytes / sizeof(float);
  problem.in_place = true;
  const schedule::Choice taken = schedule::choose(problem, sizeof(float), at_calls_);
  problem = schedule::placed(problem, sizeof(float), facts);
  problem.chunk = taken.chunk;
  return schedule::cost(taken.algorithm, problem, sizeof(float), facts);
}

}  // namespace mccl::native
