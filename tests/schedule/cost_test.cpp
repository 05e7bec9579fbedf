#include <gtest/gtest.h>

#include "cases.h"
#include "schedule/choose.h"

namespace mccl::schedule {
namespace {

TEST(Cost, GrowsWithTheDataAndTheLatency) {
  for (const Collective collective : kCollectives) {
    if (collective == Collective::barrier || collective == Collective::all_to_all) continue;
    for (const Algorithm algorithm : kAlgorithms) {
      for (const int size : {2, 3, 8}) {
        Case small = call(collective, size, 64 << 10);
        Case large = call(collective, size, 64 << 20);
        small.chunk = large.chunk = 65536;
        if (!can(algorithm, problem_of(small, 0))) continue;
        const double cheap = cost(algorithm, problem_of(small, 0), 4, {});
        EXPECT_GT(cheap, 0);
        EXPECT_GT(cost(algorithm, problem_of(large, 0), 4, {}), 2 * cheap) << name_of(algorithm);
        EXPECT_GT(cost(algorithm, problem_of(small, 0), 4, {.latency_s = 1}), 1)
            << name_of(algorithm);
      }
    }
  }
}

/// Returns the facts of one node with this number of ranks per core.
Facts of_node(int ranks, double ranks_per_core) {
  Facts facts;
  facts.nodes.assign(static_cast<std::size_t>(ranks), 0);
  facts.window_bytes = std::size_t{1} << 20;
  facts.ranks_per_core = ranks_per_core;
  return facts;
}

double small_cost(Algorithm algorithm, Collective collective, const Facts& facts) {
  const int size = static_cast<int>(facts.nodes.size());
  Problem problem = placed(problem_of(call(collective, size, 64), 0), 4, facts);
  problem.chunk = 1024;
  return cost(algorithm, problem, 4, facts);
}

TEST(Cost, SynchronisingOnSharedCoresCostsASwitchPerRank) {
  const Facts before = of_node(4, 2);
  Facts after = before;
  after.switch_s += 10e-6;
  const auto added = [&](Algorithm algorithm, Collective collective) {
    return small_cost(algorithm, collective, after) - small_cost(algorithm, collective, before);
  };
  EXPECT_NEAR(added(Algorithm::one_shot, Collective::all_reduce), 20e-6, 1e-12);
  EXPECT_NEAR(added(Algorithm::two_shot, Collective::all_reduce), 40e-6, 1e-12);
  EXPECT_NEAR(added(Algorithm::one_shot, Collective::broadcast), 0, 1e-12);
}

TEST(Cost, ACallWithoutWaitsOnSharedCoresTakesOneTimeSlice) {
  const Facts before = of_node(4, 2);
  Facts after = before;
  after.turn_s += 10e-6;
  const auto added = [&](Collective collective) {
    return small_cost(Algorithm::one_shot, collective, after) -
           small_cost(Algorithm::one_shot, collective, before);
  };
  EXPECT_NEAR(added(Collective::broadcast), 20e-6, 1e-12);
  EXPECT_NEAR(added(Collective::all_reduce), 0, 1e-12);
}

TEST(Cost, ARankWithItsOwnCoreNeverSwitches) {
  const Facts before = of_node(4, 1);
  Facts after = before;
  after.switch_s = after.turn_s = 1;
  for (const Collective collective : {Collective::all_reduce, Collective::broadcast}) {
    EXPECT_EQ(small_cost(Algorithm::one_shot, collective, after),
              small_cost(Algorithm::one_shot, collective, before));
  }
}

/// A root that sends to three ranks pays the work of three messages, but one latency.
TEST(Cost, ConcurrentMessagesShareOneLatency) {
  Problem problem = problem_of(call(Collective::broadcast, 4, 64), 0);
  problem.chunk = 1024;
  const double none = cost(Algorithm::direct, problem, 4, {.message_work_s = 0});
  EXPECT_NEAR(cost(Algorithm::direct, problem, 4, {.message_work_s = 1e-6}) - none, 3e-6, 1e-12);
  EXPECT_EQ(cost(Algorithm::direct, problem, 4, {.shared_message_work_s = 1}),
            cost(Algorithm::direct, problem, 4, {}));
}

TEST(Cost, AMessageKeepsARankNoLongerThanItsLatency) {
  Problem problem = problem_of(call(Collective::broadcast, 4, 64), 0);
  problem.chunk = 1024;
  EXPECT_EQ(cost(Algorithm::direct, problem, 4, {.latency_s = 2e-6, .message_work_s = 1}),
            cost(Algorithm::direct, problem, 4, {.latency_s = 2e-6, .message_work_s = 2e-6}));
}

}  // namespace
}  // namespace mccl::schedule
