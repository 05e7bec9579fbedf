#include "engine/collectives/plan.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>

#include "schedule/facts.h"

namespace mccl::engine {
namespace {

schedule::Problem exchange(int ranks, std::size_t count) {
  schedule::Problem problem;
  problem.collective = Collective::all_to_all;
  problem.size = ranks;
  problem.counts.assign(static_cast<std::size_t>(ranks), count);
  problem.recv_counts = problem.counts;
  return problem;
}

std::size_t allocated() { return ::mallinfo2().uordblks; }

/// A limit on the number of plans would not do: a plan for many ranks and many pieces takes
/// megabytes.
TEST(PlanCache, IsBoundedByWhatItsPlansWeigh) {
  PlanCache plans{schedule::Facts()};
  const std::size_t before = allocated();
  std::size_t most = 0;
  for (std::size_t i = 0; i < 150; ++i) {
    plans.plan(exchange(512, 1000 + i), 4);
    const std::size_t now = allocated();
    most = std::max(most, now > before ? now - before : 0);
  }
  EXPECT_LE(most, std::size_t{12} << 20) << "eight, and one that is just being made";
}

TEST(PlanCache, KeepsAPlanAsLongAsThereIsRoom) {
  PlanCache plans{schedule::Facts()};
  const Plan* first = &plans.plan(exchange(4, 1), 4);
  for (std::size_t i = 2; i < 50; ++i) plans.plan(exchange(4, i), 4);
  EXPECT_EQ(&plans.plan(exchange(4, 1), 4), first);
}

TEST(PlanCache, OneThatAloneWeighsTooMuchIsStillMade) {
  PlanCache plans{schedule::Facts()};
  const schedule::Problem problem = exchange(256, std::size_t{64} << 20);
  const Plan* plan = &plans.plan(problem, 1);
  EXPECT_FALSE(plan->schedule.steps.empty());
  EXPECT_EQ(&plans.plan(problem, 1), plan) << "it is kept until another one comes";
}

/// A call that looks up the last plan by its shape must not find a deleted plan.
TEST(PlanCache, ForgetsTheLastPlanWithTheOthers) {
  PlanCache plans{schedule::Facts()};
  PlanShape shape;
  shape.collective = Collective::all_to_all;
  shape.count = 4;
  shape.element_bytes = 4;
  const Plan* plan = &plans.plan(exchange(4, 1), shape);
  EXPECT_EQ(plans.same_as_last(shape), plan);
  plans.clear();
  EXPECT_EQ(plans.same_as_last(shape), nullptr);
  EXPECT_TRUE(plans.empty());
}

}  // namespace
}  // namespace mccl::engine
