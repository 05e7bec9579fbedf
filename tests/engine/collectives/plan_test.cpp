#include "engine/collectives/plan.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>

#include "schedule/choose.h"

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

/// The cache must limit bytes and not only the number of plans, because a plan for many ranks and
/// many pieces takes megabytes.
TEST(PlanCache, IsBoundedByTheWeightOfItsPlans) {
  PlanCache plans{schedule::Facts()};
  const std::size_t before = allocated();
  std::size_t most = 0;
  for (std::size_t i = 0; i < 150; ++i) {
    plans.plan(exchange(512, 1000 + i), 4);
    const std::size_t now = allocated();
    most = std::max(most, now > before ? now - before : 0);
  }
  EXPECT_LE(most, std::size_t{12} << 20) << "memory of more than nine plans";
}

TEST(PlanCache, KeepsPlansWhileThereIsRoom) {
  PlanCache plans{schedule::Facts()};
  const Plan* first = &plans.plan(exchange(4, 1), 4);
  for (std::size_t i = 2; i < 50; ++i) plans.plan(exchange(4, i), 4);
  EXPECT_EQ(&plans.plan(exchange(4, 1), 4), first);
}

TEST(PlanCache, APlanAboveTheLimitIsStillMade) {
  PlanCache plans{schedule::Facts()};
  const schedule::Problem problem = exchange(256, std::size_t{64} << 20);
  const Plan* plan = &plans.plan(problem, 1);
  EXPECT_FALSE(plan->schedule.steps.empty());
  EXPECT_EQ(&plans.plan(problem, 1), plan) << "the plan was not cached";
}

Request even_exchange() {
  Request request;
  request.call.collective = Collective::all_to_all;
  request.call.count = 4;
  request.even = true;
  return request;
}

/// A call that looks up the last plan must not find a deleted plan.
TEST(PlanCache, ForgetsTheLastPlanWithTheOthers) {
  PlanCache plans{schedule::Facts()};
  const Request request = even_exchange();
  const Plan* plan = &plans.plan(exchange(4, 1), 4);
  plans.used(*plan, request);
  EXPECT_EQ(plans.same_as_last(request), plan);
  plans.clear();
  EXPECT_EQ(plans.same_as_last(request), nullptr);
  EXPECT_TRUE(plans.empty());
}

TEST(PlanCache, FindsTheLastPlanOnlyForTheSameRequest) {
  PlanCache plans{schedule::Facts()};
  const Request request = even_exchange();
  EXPECT_EQ(plans.same_as_last(request), nullptr);
  plans.used(plans.plan(exchange(4, 1), 4), request);
  Request later = request;
  later.call.sequence = 7;
  EXPECT_NE(plans.same_as_last(later), nullptr);
  const std::vector<std::size_t> counts(4, 1);
  const auto differs = [&](auto change) {
    Request other = request;
    change(other);
    return plans.same_as_last(other) == nullptr;
  };
  EXPECT_TRUE(differs([](Request& r) { r.call.collective = Collective::all_gather; }));
  EXPECT_TRUE(differs([](Request& r) { r.call.dtype = DType::f64; }));
  EXPECT_TRUE(differs([](Request& r) { r.call.root = 1; }));
  EXPECT_TRUE(differs([](Request& r) { r.call.count = 8; }));
  EXPECT_TRUE(differs([](Request& r) { r.call.coding.codec = Codec::int8; }));
  EXPECT_TRUE(differs([](Request& r) { r.in_place = true; }));
  EXPECT_TRUE(differs([](Request& r) { r.even = false; }));
  EXPECT_TRUE(differs([&](Request& r) { r.counts = counts; }));
}

}  // namespace
}  // namespace mccl::engine
