#include "cli/bench/timing.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/clock.h"

namespace mccl::cli::bench {
namespace {

constexpr std::uint64_t kFewest = 5;
constexpr std::uint64_t kMost = 1'000'000;
/// Calls shorter than this, in seconds, are also timed in a batch, because reading the clock around
/// each call would affect its time.
constexpr double kShortCall = 20e-6;
/// Share of Options::seconds that the warm-up takes.
constexpr double kWarmupShare = 0.1;

/// Numbers of calls that are timed.
struct CallCounts {
  std::uint64_t singles = 0;
  /// Number of calls timed together; 0: the mean is that of the single calls.
  std::uint64_t batch = 0;
};

double time_batch(const std::function<void()>& call, std::uint64_t count) {
  const Clock::time_point begin = Clock::now();
  for (std::uint64_t i = 0; i < count; ++i) call();
  return seconds_between(begin, Clock::now());
}

/// Returns rank 0's counts on every rank. Warms up with a doubling number of calls, until their
/// time shows how many calls fit.
CallCounts decide_counts(Group& group, const std::function<void()>& call, const Options& options) {
  double each = 0;
  std::uint64_t count = options.warmup;
  if (options.iterations == 0) count = std::max<std::uint64_t>(count, 1);
  while (count > 0) {
    meet(group);
    const double took = time_batch(call, count);
    each = took / static_cast<double>(count);
    const bool enough =
        options.iterations > 0 || took >= kWarmupShare * options.seconds || count >= kMost;
    count = value_of_first(group, enough ? 0 : 2 * count);
  }
  if (options.iterations > 0) {
    const bool is_short = options.warmup > 0 && each < kShortCall;
    return {value_of_first(group, options.iterations),
            value_of_first(group, is_short ? options.iterations : 0)};
  }
  const bool is_short = each < kShortCall;
  const double seconds = is_short ? options.seconds / 2 : options.seconds;
  const double fitting = std::min(seconds / std::max(each, 1e-9), static_cast<double>(kMost));
  const std::uint64_t calls = std::max(kFewest, static_cast<std::uint64_t>(fitting));
  return {value_of_first(group, calls), value_of_first(group, is_short ? calls : 0)};
}

}  // namespace

std::uint64_t value_of_first(Group& group, std::uint64_t value) {
  group.broadcast({&value, 1, DType::u64, {}}, 0, kBlocking).wait();
  return value;
}

double largest(Group& group, double value) {
  const Buffer buffer{&value, 1, DType::f64, {}};
  group.all_reduce(buffer, buffer, ReduceKind::max, kBlocking).wait();
  return value;
}

std::uint64_t sum(Group& group, std::uint64_t value) {
  const Buffer buffer{&value, 1, DType::u64, {}};
  group.all_reduce(buffer, buffer, ReduceKind::sum, kBlocking).wait();
  return value;
}

void meet(Group& group) { group.barrier(kBlocking).wait(); }

double percentile(std::span<double> samples, double share) {
  if (samples.empty()) return 0;
  const auto n = static_cast<double>(samples.size());
  const double rank = std::clamp(std::ceil(share * n), 1.0, n);
  const auto at = samples.begin() + static_cast<std::ptrdiff_t>(rank) - 1;
  std::ranges::nth_element(samples, at);
  return *at;
}

Timing measure(Group& group, const std::function<void()>& call, const Options& options) {
  const CallCounts counts = decide_counts(group, call, options);
  std::vector<double> samples(counts.singles);
  meet(group);
  const Clock::time_point begin = Clock::now();
  Clock::time_point before = begin;
  for (double& sample : samples) {
    call();
    const Clock::time_point after = Clock::now();
    sample = seconds_between(before, after);
    before = after;
  }
  double elapsed = seconds_between(begin, before);
  if (counts.batch > 0) {
    meet(group);
    elapsed = time_batch(call, counts.batch);
  }
  const std::uint64_t calls = counts.batch > 0 ? counts.batch : counts.singles;
  return {largest(group, elapsed) / static_cast<double>(calls) * 1e6,
          percentile(samples, 0.50) * 1e6, percentile(samples, 0.99) * 1e6, calls};
}

}  // namespace mccl::cli::bench
