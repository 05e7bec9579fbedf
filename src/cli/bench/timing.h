// How long a call takes, measured by all ranks together.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "cli/bench/options.h"
#include "mccl/group.h"

namespace mccl::cli::bench {

struct Timing {
  double time_us = 0;            ///< Mean of the slowest rank.
  double p50_us = 0;             ///< Of single calls, as rank 0 saw them.
  double p99_us = 0;             ///< The same.
  std::uint64_t iterations = 0;  ///< Calls behind time_us.
};

/// Every rank calls it with its own side of the same call. Which calls are made, and how many,
/// follows from options.{seconds, iterations, warmup} and from rank 0's clock.
Timing measure(Group& group, const std::function<void()>& call, const Options& options);

/// The smallest sample that at least `share` of all are no larger than; reorders the samples.
double percentile(std::span<double> samples, double share);

}  // namespace mccl::cli::bench
