#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <vector>

#include "cli/bench/trial.h"
#include "support/ranks.h"

namespace mccl::cli::bench {
namespace {

TEST(Percentile, IsTheNearestRank) {
  std::vector<double> samples(100);
  std::iota(samples.rbegin(), samples.rend(), 1.0);
  EXPECT_EQ(percentile(samples, 0.50), 50);
  EXPECT_EQ(percentile(samples, 0.99), 99);
  EXPECT_EQ(percentile(samples, 1), 100);
  std::vector<double> few = {3, 1, 2};
  EXPECT_EQ(percentile(few, 0.5), 2);
  EXPECT_EQ(percentile(few, 0.99), 3);
  EXPECT_EQ(percentile({}, 0.5), 0);
}

/// Returns the number of calls that each of two ranks makes with these options, and rank 0's
/// timing.
std::pair<std::vector<std::uint64_t>, Timing> calls_of(const Options& options) {
  std::vector<std::uint64_t> calls(2);
  Timing timing;
  testing::run_ranks(2, [&](Context& context) {
    std::uint64_t mine = 0;
    const Timing measured = measure(
        *context.world(), [&] { ++mine; }, options);
    calls[static_cast<std::size_t>(context.rank())] = mine;
    if (context.rank() == 0) timing = measured;
  });
  return {calls, timing};
}

TEST(Measure, MakesTheRequestedNumberOfCallsOnEveryRank) {
  Options options;
  options.iterations = 30;
  options.warmup = 0;
  const auto [calls, timing] = calls_of(options);
  EXPECT_EQ(calls, (std::vector<std::uint64_t>{30, 30}));
  EXPECT_EQ(timing.iterations, 30U);
}

TEST(Measure, ShortCallsAreTimedInABatchToo) {
  Options options;
  options.iterations = 30;
  options.warmup = 1000;
  const auto [calls, timing] = calls_of(options);
  EXPECT_EQ(calls, (std::vector<std::uint64_t>{1060, 1060}));
  EXPECT_EQ(timing.iterations, 30U);
}

TEST(Measure, RanksAgreeOnHowManyCallsFit) {
  Options options;
  options.seconds = 0.002;
  const auto [calls, timing] = calls_of(options);
  EXPECT_EQ(calls[0], calls[1]);
  EXPECT_GE(timing.iterations, 5U);
  EXPECT_GE(timing.p99_us, timing.p50_us);
}

TEST(Measure, MakesAtLeastFiveCalls) {
  Options options;
  options.seconds = 0;
  EXPECT_GE(calls_of(options).second.iterations, 5U);
}

}  // namespace
}  // namespace mccl::cli::bench
