#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "cli/plan/answer.h"
#include "cli/plan/facts.h"
#include "support/verifier/verify.h"

namespace mccl::cli::plan {
namespace {

using bench::Routine;

Question question(Routine routine, std::size_t bytes, int ranks, bool in_place = false) {
  Question asked;
  asked.routine = routine;
  asked.shape = bench::shape_of(routine, bytes, DType::f32, ranks);
  asked.ranks = ranks;
  asked.in_place = in_place;
  return asked;
}

schedule::Facts facts(int ranks, int per_node) {
  schedule::Facts facts;
  facts.nodes = nodes_of(ranks, per_node);
  facts.window_bytes = facts.nodes.empty() ? 0 : std::size_t{1} << 20;
  return facts;
}

/// Verifies the schedules of all ranks. Returns the first defect, or "".
std::string defect_of(const Answer& found, const schedule::Facts& known) {
  std::vector<schedule::Problem> problems;
  std::vector<schedule::Schedule> schedules;
  for (int rank = 0; rank < found.question.ranks; ++rank) {
    problems.push_back(chosen_problem(found.question, rank, found.choice, known));
    schedules.push_back(schedule::build(found.choice.algorithm, problems.back()));
  }
  return schedule::verify(problems, schedules);
}

TEST(Answer, ProvesEveryCallForEveryPlacementOfRanks) {
  for (const bench::RoutineInfo& info : bench::routines()) {
    if (!has_schedule(info.routine)) continue;
    for (const int ranks : {1, 2, 5}) {
      for (const int per_node : {1, 2, 5}) {
        for (const bool in_place : {false, true}) {
          const schedule::Facts known = facts(ranks, per_node);
          Question asked = question(info.routine, 4096, ranks, in_place);
          asked.root = ranks - 1;
          const Answer found = answer(asked, known);
          EXPECT_EQ(defect_of(found, known), "") << info.name << " " << ranks << " " << per_node;
          ASSERT_TRUE(found.traffic);
          EXPECT_EQ(found.traffic->ranks, ranks);
        }
      }
    }
  }
}

TEST(Answer, CountsTheBytesOfTheBusiestRank) {
  schedule::Facts known = facts(4, 1);
  known.forced = schedule::Algorithm::ring;
  const Answer ring = answer(question(Routine::all_reduce, 4 << 20, 4), known);
  ASSERT_TRUE(ring.traffic);
  EXPECT_EQ(ring.traffic->sent, 6U << 20);  // 2 * 3/4 of the buffer
  EXPECT_EQ(ring.traffic->received, 6U << 20);
  EXPECT_EQ(ring.traffic->published, 0U);

  known = facts(4, 4);
  known.forced = schedule::Algorithm::one_shot;
  const Answer shared = answer(question(Routine::all_reduce, 1 << 20, 4), known);
  ASSERT_TRUE(shared.traffic);
  EXPECT_EQ(shared.traffic->published, 1U << 20);
  EXPECT_EQ(shared.traffic->read, 3U << 20);  // the parts of the three other ranks
  EXPECT_EQ(shared.traffic->sent, 0U);

  // Only the root sends. The answer must contain the root's traffic, whatever the number of the
  // root.
  known = facts(4, 1);
  known.forced = schedule::Algorithm::direct;
  Question broadcast = question(Routine::broadcast, 1 << 20, 4);
  broadcast.root = 2;
  EXPECT_EQ(answer(broadcast, known).traffic->sent, 3U << 20);
}

TEST(Answer, RatesFollowFromSizeAndTime) {
  const Answer found = answer(question(Routine::all_reduce, 1 << 20, 4), facts(4, 4));
  EXPECT_DOUBLE_EQ(found.algbw_gbs(), (1 << 20) / found.choice.predicted_s / 1e9);
  EXPECT_DOUBLE_EQ(found.busbw_gbs(), found.algbw_gbs() * 1.5);
}

TEST(Answer, ListsEveryUsableAlgorithmCheapestFirst) {
  const schedule::Facts known = facts(8, 1);
  const Question asked = question(Routine::all_reduce, 1 << 20, 8);
  const auto found = alternatives(asked, known);
  EXPECT_TRUE(std::ranges::is_sorted(found, {}, &schedule::Choice::predicted_s));
  EXPECT_EQ(found.size(), 7U);  // all algorithms except those for barriers, windows and nodes
  // Above small_bytes no algorithm is preset, so the cheapest is chosen.
  EXPECT_EQ(found.front().algorithm, choose(asked, known).algorithm);
}

TEST(Answer, ThousandsOfRanksAreOnlySampled) {
  const schedule::Facts known = facts(4096, 8);
  const Answer found = answer(question(Routine::all_gather, 64 << 20, 4096), known);
  ASSERT_TRUE(found.traffic);
  EXPECT_GT(found.traffic->ranks, 0);
  EXPECT_LT(found.traffic->ranks, 4096);
}

TEST(Answer, SkipsSchedulesThatTakeLongToBuild) {
  schedule::Facts known = facts(4, 1);
  known.chunk_bytes = 64;
  const Answer found = answer(question(Routine::all_reduce, std::size_t{1} << 30, 4), known);
  EXPECT_FALSE(found.traffic);
  EXPECT_GT(found.estimated_steps, 1e6);
}

}  // namespace
}  // namespace mccl::cli::plan
