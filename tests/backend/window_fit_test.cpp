#include "backend/native/window_fit.h"

#include <gtest/gtest.h>

namespace mccl::native {
namespace {

using schedule::Facts;

constexpr std::size_t kSmall = 8;
constexpr std::size_t kCached = std::size_t{256} << 10;

/// Returns the facts that a group on one node has before anything is measured.
Facts at_calls(int ranks) {
  Facts facts;
  facts.nodes.assign(static_cast<std::size_t>(ranks), 0);
  facts.window_bytes = std::size_t{1} << 20;
  return facts;
}

/// Returns the time that a call takes on a machine described by `facts`.
double taken(Collective collective, int ranks, std::size_t bytes, const Facts& facts) {
  schedule::Problem problem;
  problem.collective = collective;
  problem.size = ranks;
  problem.count = bytes / sizeof(float);
  problem.in_place = true;
  const schedule::Choice choice = schedule::choose(problem, sizeof(float), at_calls(ranks));
  problem = schedule::placed(problem, sizeof(float), facts);
  problem.chunk = choice.chunk;
  return schedule::cost(choice.algorithm, problem, sizeof(float), facts);
}

TEST(WindowFit, FitsAMachineWithACorePerRank) {
  for (const int ranks : {2, 3, 8}) {
    Facts machine = at_calls(ranks);
    machine.window_latency_s = 0.4e-6;
    machine.cached_bytes_per_s = 9e9;
    const double small = taken(Collective::all_reduce, ranks, kSmall, machine);
    const double cached = taken(Collective::all_reduce, ranks, kCached, machine);
    const WindowFit fit(at_calls(ranks), ranks, 1, kSmall);
    EXPECT_NEAR(fit.solve(&Facts::window_latency_s, Collective::all_reduce, small), 0.4e-6, 0.01e-6)
        << ranks;
    EXPECT_NEAR(fit.cached_bytes_per_s(kCached, cached - small), 9e9, 0.5e9) << ranks;
  }
}

TEST(WindowFit, FitsAMachineWithSharedCores) {
  for (const double ranks_per_core : {1.5, 2.0, 4.0}) {
    Facts machine = at_calls(4);
    machine.ranks_per_core = ranks_per_core;
    machine.switch_s = 5e-6;
    machine.turn_s = 0.7e-6;
    const WindowFit fit(at_calls(4), 4, ranks_per_core, kSmall);
    EXPECT_NEAR(fit.solve(&Facts::switch_s, Collective::all_reduce,
                          taken(Collective::all_reduce, 4, kSmall, machine)),
                5e-6, 1e-9);
    EXPECT_NEAR(fit.solve(&Facts::turn_s, Collective::broadcast,
                          taken(Collective::broadcast, 4, kSmall, machine)),
                0.7e-6, 1e-9);
  }
}

TEST(WindowFit, DisturbedMeasurementsStillGiveValidFacts) {
  const WindowFit alone(at_calls(2), 2, 1, kSmall);
  EXPECT_GT(alone.solve(&Facts::window_latency_s, Collective::all_reduce, 0), 0);
  EXPECT_GT(alone.cached_bytes_per_s(kCached, -1), 0);
  const WindowFit crowded(at_calls(4), 4, 2, kSmall);
  EXPECT_GT(crowded.solve(&Facts::switch_s, Collective::all_reduce, 0), 0);
  EXPECT_GT(crowded.solve(&Facts::turn_s, Collective::broadcast, 0), 0);
}

/// If a setting forces calls through links, nothing is learned about the window.
TEST(WindowFit, IgnoresCallsWithoutAWindow) {
  Facts forced = at_calls(4);
  forced.forced = schedule::Algorithm::direct;
  const WindowFit fit(forced, 4, 2, kSmall);
  EXPECT_EQ(fit.solve(&Facts::window_latency_s, Collective::all_reduce, 1e-6), 0);
  EXPECT_EQ(fit.solve(&Facts::switch_s, Collective::all_reduce, 1e-6), 0);
  EXPECT_EQ(fit.solve(&Facts::turn_s, Collective::broadcast, 1e-6), 0);
  EXPECT_EQ(fit.cached_bytes_per_s(kCached, 1e-6), 0);
}

}  // namespace
}  // namespace mccl::native
