// Verifies every collective over cablings of all shapes. Schedules that can use cables alone must
// do so, and must be chosen.
#include <gtest/gtest.h>

#include <algorithm>

#include "cable_shapes.h"
#include "cases.h"
#include "schedule/choose.h"
#include "support/verifier/verify.h"
#include "support/verifier/verify_cables.h"

namespace mccl::schedule {
namespace {

constexpr Algorithm kAlongCables[] = {Algorithm::cable_tree, Algorithm::ring, Algorithm::ring_both,
                                      Algorithm::chain};

class CableSchedules : public ::testing::TestWithParam<Shape> {
 protected:
  CableSchedules() : map_(std::make_shared<CableMap>(map_of(GetParam().cabling))) {}

  std::vector<Problem> problems_of_case(const Case& c) const {
    std::vector<Problem> problems = problems_of(c);
    for (Problem& problem : problems) {
      problem.ring = map_->ring();
      problem.tree = map_->tree();
    }
    return problems;
  }

  bool goes_along_cables(const std::vector<Schedule>& schedules) const {
    return beyond_cables(schedules, *map_).empty();
  }

  void prove(Algorithm algorithm, const Case& c) const {
    const std::vector<Problem> problems = problems_of_case(c);
    if (!can(algorithm, problems[0])) return;
    const std::vector<Schedule> schedules = build_all(algorithm, problems);
    ASSERT_EQ(verify(problems, schedules), "") << describe(algorithm, c);
    if (algorithm == Algorithm::cable_tree || !map_->ring().empty()) {
      const bool closes = algorithm != Algorithm::chain || c.root == 0;
      EXPECT_TRUE(!closes || goes_along_cables(schedules)) << describe(algorithm, c);
    }
  }

  const std::shared_ptr<const CableMap> map_;
};

TEST_P(CableSchedules, AreProvedAndKeepToCables) {
  for (const Collective collective : kCollectives) {
    for (const Algorithm algorithm : kAlongCables) {
      for (const int root :
           is_rooted(collective) ? std::vector{0, map_->size() - 1} : std::vector{0}) {
        for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{1237}}) {
          for (int shape = 0; shape < (has_parts(collective) ? 3 : 1); ++shape) {
            Case c{.collective = collective, .size = map_->size(), .root = root, .count = count};
            if (has_parts(collective)) c.counts = parts_of(c.size, count, shape);
            for (const std::size_t chunk : {std::size_t{5000}, std::size_t{100}}) {
              c.chunk = chunk;
              for (const bool in_place : {false, true}) {
                c.in_place = in_place && collective != Collective::all_to_all;
                prove(algorithm, c);
                ASSERT_FALSE(HasFatalFailure());
              }
            }
          }
        }
      }
    }
  }
}

/// The schedule chosen for a large buffer loads each cable at most twice as much as necessary.
TEST_P(CableSchedules, LargeCallsAreChosenAlongCables) {
  Facts facts;
  facts.cables = map_;
  for (const Collective collective :
       {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
        Collective::broadcast, Collective::reduce, Collective::gather, Collective::scatter}) {
    Case c{.collective = collective, .size = map_->size(), .count = std::size_t{16} << 20};
    if (has_parts(collective)) c.counts.assign(c.size, c.count / c.size);
    const Choice choice = choose(problem_of(c, 0), 4, facts);
    c.chunk = choice.chunk;
    EXPECT_TRUE(goes_along_cables(build_all(choice.algorithm, problems_of_case(c))))
        << GetParam().name << ": " << describe(choice.algorithm, c);
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, CableSchedules, ::testing::ValuesIn(shapes()),
                         [](const auto& info) { return info.param.name; });

TEST(BeyondCables, TheErrorNamesDataThatNeedsARelay) {
  const CableMap line = map_of(cabled(3, {{0, 1}, {1, 2}}));
  const Case c{.collective = Collective::broadcast, .size = 3, .count = 7, .chunk = 100};
  const std::vector<Schedule> direct = build_all(Algorithm::direct, problems_of(c));
  EXPECT_EQ(beyond_cables(direct, line),
            "rank 0: send output[0..7) to rank 2, to which no cable leads");
  EXPECT_EQ(beyond_cables(direct, map_of(ring_of({0, 1, 2}))), "");
}

/// No rank knows what the others exchange, and yet all must make the same choice.
TEST(CableChoice, AnUnevenExchangeIsTheSameOnEveryRank) {
  Facts facts;
  facts.cables = std::make_shared<CableMap>(map_of(ring_of({0, 1, 2, 3})));
  std::vector<Choice> choices;
  std::vector<double> costs;
  for (int rank = 0; rank < 4; ++rank) {
    Problem problem{.collective = Collective::all_to_all, .rank = rank, .size = 4};
    for (int peer = 0; peer < 4; ++peer) {
      problem.counts.push_back(static_cast<std::size_t>((rank + 2 * peer) % 3) * 100'000);
      problem.recv_counts.push_back(static_cast<std::size_t>((peer + 2 * rank) % 3) * 100'000);
    }
    choices.push_back(choose(problem, 4, facts));
    EXPECT_GT(choices.back().predicted_s, 0);
    EXPECT_EQ(choices.back().predicted_s, choices.front().predicted_s);
    EXPECT_EQ(choices.back().algorithm, choices.front().algorithm);
    EXPECT_EQ(choices.back().chunk, choices.front().chunk);
    problem.chunk = choices.back().chunk;
    costs.push_back(cost(Algorithm::direct, problem, 4, facts));
    EXPECT_EQ(costs.back(), costs.front());
  }
}

/// Half as many bytes take half the time on the cables.
TEST(CableChoice, ChargesCompressedSumsForTheBytesTheySend) {
  Facts facts;
  facts.cables = std::make_shared<CableMap>(map_of(cabled(3, {{0, 1}, {1, 2}})));
  Case c{.collective = Collective::all_reduce, .size = 3, .count = std::size_t{16} << 20};
  c.chunk = std::size_t{1} << 18;
  const double exact = cost(Algorithm::direct, problem_of(c, 0), 4, facts);
  c.codec = Codec::bf16;
  const Problem rounded = problem_of(c, 0);
  EXPECT_LT(cost(Algorithm::direct, rounded, 4, facts), 0.6 * exact);
  EXPECT_TRUE(is_faster_coded(rounded, 4, facts));
}

TEST(CableChoice, ARingGoesBothWaysAround) {
  Facts facts;
  facts.cables = std::make_shared<CableMap>(map_of(ring_of({0, 1, 2, 3})));
  const Case c{.collective = Collective::all_reduce, .size = 4, .count = std::size_t{16} << 20};
  const Choice choice = choose(problem_of(c, 0), 4, facts);
  EXPECT_EQ(choice.algorithm, Algorithm::ring_both);
  // Each cable carries 3/4 of the buffer in each direction, at 125 MB/s.
  const double bound = 0.75 * (64 << 20) / 125e6;
  EXPECT_GT(choice.predicted_s, bound);
  EXPECT_LT(choice.predicted_s, 1.1 * bound);
}

}  // namespace
}  // namespace mccl::schedule
