// Measures the duration of a call. All ranks take part in the measurement, and agree on values.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "cli/bench/routine.h"
#include "mccl/group.h"

namespace mccl::cli::bench {

/// Options of a collective whose caller waits for it immediately.
inline const CallOptions kBlocking = {.timeout = {}, .caller_waits = true};
/// The same, without a codec.
inline const CallOptions kExact = {
    .timeout = {}, .caller_waits = true, .compression = Compression{Codec::none}};

/// Collectives of single values, from which every rank of a run gets the same result.
/// value_of_first() returns rank 0's value.
std::uint64_t value_of_first(Group& group, std::uint64_t value);
double largest(Group& group, double value);
std::uint64_t sum(Group& group, std::uint64_t value);
void meet(Group& group);

struct Timing {
  double time_us = 0;            ///< Mean time of a call on the slowest rank.
  double p50_us = 0;             ///< Median time of single calls, on rank 0.
  double p99_us = 0;             ///< 99th percentile of the same calls.
  std::uint64_t iterations = 0;  ///< Number of calls that time_us averages.
};

/// Called by every rank with its own side of the same call. options.{seconds, iterations, warmup}
/// and rank 0's clock decide how many calls are made.
Timing measure(Group& group, const std::function<void()>& call, const Options& options);

/// Returns the smallest sample such that at least `share` of all samples are no larger. Reorders
/// the samples.
double percentile(std::span<double> samples, double share);

}  // namespace mccl::cli::bench
