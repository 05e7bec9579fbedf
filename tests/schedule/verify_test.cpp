// Tests that the verifier detects defects in schedules that are nearly correct.
#include "support/verifier/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "cases.h"
#include "schedule/builder.h"
#include "scheduled_group.h"

namespace mccl::schedule {
namespace {

using ::testing::HasSubstr;

const Case kRing{.collective = Collective::all_reduce, .size = 4, .count = 23, .chunk = 3};

const std::pair<Algorithm, Case> kMany[] = {
    {Algorithm::ring, kRing},
    {Algorithm::direct, {.size = 3, .count = 10, .chunk = 4}},
    {Algorithm::recursive_doubling, {.size = 5, .count = 9, .chunk = 4, .in_place = true}},
    {Algorithm::binomial_tree, {.size = 6, .count = 7, .chunk = 3}},
    {Algorithm::pairwise, {.size = 3, .count = 12, .chunk = 3}},
    {Algorithm::ring_both,
     {.collective = Collective::all_gather, .size = 4, .counts = {5, 0, 7, 3}, .chunk = 2}},
    {Algorithm::ring,
     {.collective = Collective::reduce_scatter, .size = 4, .counts = {5, 1, 7, 3}, .chunk = 2}},
    {Algorithm::binomial_tree,
     {.collective = Collective::gather, .size = 6, .root = 2, .counts = {1, 2, 3, 4, 5, 6}}},
    {Algorithm::binomial_tree,
     {.collective = Collective::scatter, .size = 6, .root = 2, .counts = {1, 2, 3, 4, 5, 6}}},
    {Algorithm::chain, {.collective = Collective::reduce, .size = 4, .root = 1, .count = 9}},
    {Algorithm::chain, {.collective = Collective::broadcast, .size = 4, .root = 1, .count = 9}},
    {Algorithm::pairwise, {.collective = Collective::all_to_all, .size = 4, .count = 3}},
    {Algorithm::dissemination, {.collective = Collective::barrier, .size = 6}},
};

TEST(Verify, FindsEveryDroppedStep) {
  for (const auto& [algorithm, c] : kMany) {
    const ScheduledGroup whole(algorithm, c);
    ASSERT_EQ(whole.defect(), "");
    for (int rank = 0; rank < c.size; ++rank) {
      for (std::size_t i = 0; i < whole.schedules[rank].steps.size(); ++i) {
        ScheduledGroup group = whole;
        auto& steps = group.schedules[rank].steps;
        steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(i));
        group.wait_again(rank);
        ASSERT_NE(group.defect(), "") << describe(algorithm, c) << " without step " << i;
      }
    }
  }
}

TEST(Verify, FindsEveryShiftedRegion) {
  for (const auto& [algorithm, c] : kMany) {
    if (c.collective == Collective::barrier) continue;
    const ScheduledGroup whole(algorithm, c);
    for (int rank = 0; rank < c.size; ++rank) {
      for (std::size_t i = 0; i < whole.schedules[rank].steps.size(); ++i) {
        for (const bool source : {false, true}) {
          ScheduledGroup group = whole;
          Step& step = group.schedules[rank].steps[i];
          Region& region = source ? step.src : step.dst;
          if (region.count == 0) continue;
          ++region.offset;
          group.schedules[rank].scratch_count += 1;
          group.wait_again(rank);
          ASSERT_NE(group.defect(), "") << describe(algorithm, c) << " with step " << i << " moved";
        }
      }
    }
  }
}

/// True if `later` waits for `earlier`, directly or through other steps.
bool reaches(const Schedule& s, std::uint32_t earlier, std::uint32_t later) {
  if (earlier == later) return true;
  for (auto e = s.successor_begin[earlier]; e < s.successor_begin[earlier + 1]; ++e) {
    if (s.successors[e] <= later && reaches(s, s.successors[e], later)) return true;
  }
  return false;
}

void drop_wait(Schedule& s, std::uint32_t earlier, std::size_t edge) {
  --s.waits[s.successors[edge]];
  s.successors.erase(s.successors.begin() + static_cast<std::ptrdiff_t>(edge));
  for (std::size_t i = earlier + 1; i < s.successor_begin.size(); ++i) --s.successor_begin[i];
}

TEST(Verify, FindsEveryMissingWait) {
  int missing = 0;
  for (const auto& [algorithm, c] : kMany) {
    if (c.collective == Collective::barrier || c.collective == Collective::all_to_all) continue;
    const ScheduledGroup whole(algorithm, c);
    for (int rank = 0; rank < c.size; ++rank) {
      const Schedule& s = whole.schedules[rank];
      for (std::uint32_t i = 0; i < s.steps.size(); ++i) {
        for (auto e = s.successor_begin[i]; e < s.successor_begin[i + 1]; ++e) {
          ScheduledGroup group = whole;
          drop_wait(group.schedules[rank], i, e);
          if (reaches(group.schedules[rank], i, s.successors[e])) continue;
          ASSERT_THAT(group.defect(), HasSubstr("does not wait for step"))
              << describe(algorithm, c);
          ++missing;
        }
      }
    }
  }
  EXPECT_GT(missing, 100);
}

TEST(Verify, FindsASpoiltLink) {
  ScheduledGroup group(Algorithm::ring, kRing);
  ++group.schedules[1].waits.back();
  EXPECT_THAT(group.defect(), HasSubstr("rank 1"));
  group = ScheduledGroup(Algorithm::ring, kRing);
  group.schedules[2].successors.front() = 0;
  EXPECT_THAT(group.defect(), HasSubstr("no later step"));
  group = ScheduledGroup(Algorithm::ring, kRing);
  group.schedules[2].waits.pop_back();
  EXPECT_THAT(group.defect(), HasSubstr("do not fit the steps"));
}

TEST(Verify, FindsSwappedSends) {
  ScheduledGroup group(Algorithm::ring, kRing);
  std::swap(group.find(0, StepKind::send).src, group.find(0, StepKind::send, 2).src);
  group.wait_again(0);
  EXPECT_NE(group.defect(), "");
  group = ScheduledGroup(Algorithm::direct,
                         {.collective = Collective::broadcast, .size = 2, .count = 8, .chunk = 4});
  std::swap(group.find(0, StepKind::send).src, group.find(0, StepKind::send, 1).src);
  group.wait_again(0);
  EXPECT_THAT(group.defect(), HasSubstr("holds element"));
}

TEST(Verify, FindsAMessageThatDoesNotFitItsReceive) {
  ScheduledGroup group(Algorithm::direct,
                       {.collective = Collective::broadcast, .size = 2, .count = 8});
  group.find(1, StepKind::recv).dst.count = 0;
  EXPECT_THAT(group.defect(), HasSubstr("the message is empty"));
  group = ScheduledGroup(Algorithm::direct,
                         {.collective = Collective::broadcast, .size = 2, .count = 8, .chunk = 4});
  group.find(1, StepKind::recv).dst.count = 3;
  group.wait_again(1);
  EXPECT_THAT(group.defect(), HasSubstr("has 4 elements"));
}

TEST(Verify, FindsCountsThatDisagree) {
  const Case c{.collective = Collective::all_to_all, .size = 3, .count = 4, .chunk = 8};
  for (const Algorithm algorithm : {Algorithm::direct, Algorithm::pairwise}) {
    std::vector<Problem> problems = problems_of(c);
    problems[1].counts[2] = 0;
    EXPECT_NE(verify(problems, build_all(algorithm, problems)), "") << name_of(algorithm);
  }
}

TEST(Verify, FindsDroppedAndDoubledCompletion) {
  ScheduledGroup group(Algorithm::ring, kRing);
  for (Step& step : group.schedules[2].steps) step.completes = false;
  EXPECT_THAT(group.defect(), HasSubstr("never completed"));
  group = ScheduledGroup(Algorithm::ring, kRing);
  group.find(0, StepKind::recv_reduce).completes = true;
  EXPECT_THAT(group.defect(), HasSubstr("contributions out of 4"));
  group = ScheduledGroup(Algorithm::chain,
                         {.collective = Collective::broadcast, .size = 2, .count = 1});
  group.find(1, StepKind::recv).completes = true;
  EXPECT_THAT(group.defect(), HasSubstr("completes a reduction where there is none"));
}

TEST(Verify, FindsAnOperandAddedTwice) {
  ScheduledGroup group(Algorithm::direct, {.size = 3, .count = 2, .chunk = 2});
  Step& fold = group.find(0, StepKind::fold);
  fold.operands = 2;
  fold.src.count = 4;
  group.wait_again(0);
  EXPECT_THAT(group.defect(), HasSubstr("2 contributions out of 3"));
  const Case two{.size = 2, .count = 4, .chunk = 4};
  EXPECT_THAT(fault_of(two,
                       [](const Problem& p, ScheduleBuilder& b) {
                         const Region in = input({0, 4});
                         const Region sum = output({0, 4});
                         b.send(1 - p.rank, in);
                         b.recv_reduce(1 - p.rank, in, sum, false);
                         b.send(1 - p.rank, in);
                         b.recv_reduce(1 - p.rank, sum, sum, true);
                       }),
              HasSubstr("twice"));
}

TEST(Verify, FindsAnotherOrderOfAddition) {
  const Case three{.size = 3, .count = 4, .chunk = 4};
  EXPECT_THAT(fault_of(three,
                       [](const Problem& p, ScheduleBuilder& b) {
                         Region sum = input({0, 4});
                         for (int d = 1; d < 3; ++d) {
                           b.send((p.rank + d) % 3, input({0, 4}));
                           b.recv_reduce((p.rank + 3 - d) % 3, sum, output({0, 4}), d == 2);
                           sum = output({0, 4});
                         }
                       }),
              HasSubstr("another order"));
}

TEST(Verify, FindsDeadlocks) {
  // Each rank overwrites what it sends, so it waits until the peer has received it.
  const Case two{.size = 2, .count = 4, .chunk = 4, .in_place = true};
  EXPECT_THAT(fault_of(two,
                       [](const Problem& p, ScheduleBuilder& b) {
                         b.send(1 - p.rank, output({0, 4}));
                         b.recv_reduce(1 - p.rank, output({0, 4}), output({0, 4}), true);
                       }),
              HasSubstr("deadlock"));
  // Both ranks forward data that they have yet to receive.
  const Case gather{.collective = Collective::all_gather, .size = 2, .counts = {1, 1}, .chunk = 1};
  EXPECT_THAT(fault_of(gather,
                       [](const Problem& p, ScheduleBuilder& b) {
                         const auto peer = static_cast<std::size_t>(1 - p.rank);
                         b.recv(1 - p.rank, output({peer, 1}));
                         b.send(1 - p.rank, output({peer, 1}));
                       }),
              HasSubstr("deadlock"));
  // Rank 1 waits for rank 0's second message. It is queued behind the first, which waits for rank
  // 1.
  const Case exchange{.collective = Collective::all_to_all, .size = 2, .count = 2, .chunk = 1};
  EXPECT_THAT(fault_of(exchange,
                       [](const Problem& p, ScheduleBuilder& b) {
                         if (p.rank == 0) {
                           const auto answer = b.recv(1, output({2, 1}));
                           b.after(answer, b.send(1, input({2, 1})));
                           b.send(1, input({3, 1}));
                           b.recv(1, output({3, 1}));
                         } else {
                           b.recv(0, output({0, 1}));
                           const auto second = b.recv(0, output({1, 1}));
                           b.after(second, b.send(0, input({0, 1})));
                           b.send(0, input({1, 1}));
                         }
                       }),
              HasSubstr("deadlock"));
}

TEST(Verify, FindsWritesToInput) {
  ScheduledGroup group(Algorithm::ring, kRing);
  for (Step& step : group.schedules[3].steps) {
    if (step.kind == StepKind::recv) step.dst.space = Space::input;
  }
  group.wait_again(3);
  EXPECT_THAT(group.defect(), HasSubstr("writes input"));
  // In place, a reduce_scatter may write only this rank's part of the input.
  const Case scatter{.collective = Collective::reduce_scatter,
                     .size = 2,
                     .counts = {2, 2},
                     .chunk = 2,
                     .in_place = true};
  const auto write = [](bool own) {
    return [own](const Problem& p, ScheduleBuilder& b) {
      const auto mine = static_cast<std::size_t>(p.rank) * 2;
      b.send(1 - p.rank, input({2 - mine, 2}));
      b.recv_reduce(1 - p.rank, input({mine, 2}), output({0, 2}), true);
      if (!own) b.copy(output({0, 2}), input({2 - mine, 2}));
    };
  };
  EXPECT_EQ(fault_of(scatter, write(true)), "");
  EXPECT_THAT(fault_of(scatter, write(false)), HasSubstr("writes input"));
}

TEST(Verify, FindsRegionsOutsideOfTheirMemory) {
  ScheduledGroup group(Algorithm::direct, {.size = 3, .count = 5, .chunk = 5});
  group.schedules[1].scratch_count -= 1;
  EXPECT_THAT(group.defect(), HasSubstr("outside of its memory"));
  // Only the root of a reduction has an output.
  ScheduledGroup reduce(Algorithm::direct,
                        {.collective = Collective::reduce, .size = 2, .count = 4});
  Step extra{.kind = StepKind::copy, .src = input({0, 1}), .dst = output({0, 1})};
  reduce.schedules[1].steps.push_back(extra);
  reduce.wait_again(1);
  EXPECT_THAT(reduce.defect(), HasSubstr("outside of its memory"));
}

TEST(Verify, FindsMessagesLargerThanAChunk) {
  ScheduledGroup group(Algorithm::ring, kRing);
  for (Problem& p : group.problems) p.chunk = 2;
  EXPECT_THAT(group.defect(), HasSubstr("larger than a chunk"));
}

TEST(Verify, FindsABarrierThatDoesNotWaitForAllRanks) {
  ScheduledGroup group(Algorithm::dissemination, {.collective = Collective::barrier, .size = 6});
  Schedule& s = group.schedules[0];
  std::fill(s.waits.begin(), s.waits.end(), 0);
  std::fill(s.successor_begin.begin(), s.successor_begin.end(), 0);
  s.successors.clear();
  EXPECT_THAT(group.defect(), HasSubstr("may leave the barrier before"));
}

const Case kShared{.size = 3, .count = 8, .placement = Placement::one_node, .window = 64};

TEST(Verify, FindsRanksThatUseUnequallyMuchOfTheWindow) {
  for (const Algorithm algorithm : {Algorithm::one_shot, Algorithm::two_shot}) {
    ScheduledGroup group(algorithm, kShared);
    ASSERT_EQ(group.defect(), "");
    ++group.schedules[1].window_count;
    EXPECT_THAT(group.defect(), HasSubstr("rank 1 uses")) << name_of(algorithm);
  }
  // The same holds without data that follows.
  Case barrier = kShared;
  barrier.collective = Collective::barrier;
  ScheduledGroup group(Algorithm::one_shot, barrier);
  ASSERT_EQ(group.defect(), "");
  group.schedules[2].window_count = 1;
  EXPECT_THAT(group.defect(), HasSubstr("rank 2 uses 1 elements"));
}

TEST(Verify, FindsRanksThatArriveUnequallyOften) {
  ScheduledGroup group(Algorithm::one_shot, kShared);
  ++group.schedules[2].arrivals;
  EXPECT_THAT(group.defect(), HasSubstr("rank 2 arrives"));
}

TEST(Verify, FindsReadsOutsideTheLifetimeOfAPublication) {
  const auto share = [](bool waits, bool publishes_again) {
    return [=](const Problem& p, ScheduleBuilder& b) {
      b.use_window(4);
      if (p.rank == 0) b.publish(output({0, 4}), 0);
      const std::uint32_t mark = b.arrive();
      if (waits) b.await(1 - p.rank, mark);
      if (p.rank == 1) b.read(0, 0, output({0, 4}), output({0, 4}));
      if (p.rank == 0 && publishes_again) b.publish(output({0, 4}), 0);
    };
  };
  EXPECT_EQ(fault_of(kBroadcast, share(true, false)), "");
  EXPECT_THAT(fault_of(kBroadcast, share(false, false)), HasSubstr("may not have published yet"));
  EXPECT_THAT(fault_of(kBroadcast, share(true, true)), HasSubstr("may not have"));
}

const Case kCoded{.size = 3, .count = 1000, .chunk = 256, .codec = Codec::int8};

TEST(Verify, ASumThatTwoRanksEncodeIsNotTheSame) {
  // Every rank adds up all contributions and rounds the sum itself.
  const std::string fault = fault_of(kCoded, [](const Problem& p, ScheduleBuilder& builder) {
    const Extent all{0, 128};
    const std::size_t operands = builder.reserve_coded(128 * 3);
    const Region result{Space::sums, builder.reserve_sums(128), 128};
    const Region own{Space::coded, operands + 128 * static_cast<std::size_t>(p.rank), 128};
    builder.encode(input(all), own, 0);
    for (int peer = 0; peer < 3; ++peer) {
      if (peer == p.rank) continue;
      builder.send(peer, own);
      builder.recv(peer, {Space::coded, operands + 128 * static_cast<std::size_t>(peer), 128});
    }
    builder.fold_coded(operands, 3, result, 0);
    builder.decode(p.rank, result, output(all));
  });
  EXPECT_THAT(fault, ::testing::AnyOf(HasSubstr("is added in another order"),
                                      HasSubstr("is never written")));
}

TEST(Verify, BlocksAreNotElements) {
  ScheduledGroup as_elements(Algorithm::direct, kCoded);
  as_elements.find(1, StepKind::decode).kind = StepKind::copy;
  EXPECT_THAT(as_elements.defect(), HasSubstr("takes blocks for elements"));
  ScheduledGroup inside(Algorithm::direct, kCoded);
  ++inside.find(1, StepKind::encode).dst.offset;
  EXPECT_THAT(inside.defect(), HasSubstr("begins inside of a block"));
  ScheduledGroup on_one_rank(Algorithm::direct, kCoded);
  on_one_rank.find(1, StepKind::send).src = {Space::input, 0, 232};
  on_one_rank.wait_again(1);
  EXPECT_THAT(on_one_rank.defect(), HasSubstr("sends a sum's elements as they are"));
}

TEST(Verify, FindsElementsAtAWrongPlace) {
  ScheduledGroup given(Algorithm::direct, kCoded);
  ++given.find(1, StepKind::encode).element;
  EXPECT_THAT(given.defect(), HasSubstr("but has element"));
  ScheduledGroup summed(Algorithm::direct, kCoded);
  ++summed.find(2, StepKind::fold_coded).element;
  EXPECT_THAT(summed.defect(), HasSubstr("but has element"));
}

TEST(Verify, RanksOfANodeAddUpBeforeTheyRound) {
  Case pairs{.size = 4, .count = 1000, .chunk = 256, .codec = Codec::int8};
  pairs.placement = Placement::pairs;
  pairs.window = 4096;
  ScheduledGroup group(Algorithm::hierarchical, pairs);
  EXPECT_EQ(group.defect(), "");
  group.find(1, StepKind::encode).src.space = Space::input;
  EXPECT_THAT(group.defect(), HasSubstr("rounds what 1 of the 2 ranks of the node give"));

  pairs.collective = Collective::reduce_scatter;
  pairs.counts = {400, 0, 300, 700};
  ScheduledGroup scatter(Algorithm::hierarchical, pairs);
  EXPECT_EQ(scatter.defect(), "");
  scatter.find(1, StepKind::encode).src.space = Space::input;
  EXPECT_THAT(scatter.defect(), HasSubstr("rounds what 1 of the 2 ranks of the node give"));
}

/// Sums of decoded contributions would be correct, but no algorithm uses such steps.
TEST(Verify, FindsDecodingOfOperandsAndAdditionOfPlainElements) {
  Case scatter = kCoded;
  scatter.collective = Collective::reduce_scatter;
  scatter.counts = {128, 128, 128};
  const auto fault = [&](bool in_blocks) {
    return fault_of(scatter, [&](const Problem& p, ScheduleBuilder& builder) {
      const std::size_t blocks = builder.reserve_coded(128 * 6);
      const std::size_t plain = builder.reserve_scratch(128 * 3).offset;
      for (int peer = 0; peer < 3; ++peer) {
        const std::size_t at = 128 * static_cast<std::size_t>(peer);
        const Region given{Space::input, at, 128};
        const Region operand{Space::scratch, plain + at, 128};
        const Region out{Space::coded, blocks + at, 128};
        const Region in{Space::coded, blocks + 128 * 3 + at, 128};
        if (in_blocks) builder.encode(given, out, at);
        if (peer != p.rank) {
          builder.send(peer, in_blocks ? out : given);
          builder.recv(peer, in_blocks ? in : operand);
        } else if (!in_blocks) {
          builder.copy(given, operand, false);
        }
        if (in_blocks) builder.decode(peer, peer == p.rank ? out : in, operand);
      }
      builder.fold(plain, 3, {Space::output, 0, 128}, true);
    });
  };
  EXPECT_THAT(fault(true), HasSubstr("does not decode a sum"));
  EXPECT_THAT(fault(false), HasSubstr("sends a sum's elements as they are"));
}

TEST(Verify, RefusesProblemsOfDifferentCalls) {
  ScheduledGroup group(Algorithm::ring, kRing);
  group.problems[2].count += 1;
  EXPECT_THAT(group.defect(), HasSubstr("not that of rank 2"));
  group.problems.pop_back();
  EXPECT_NE(group.defect(), "");
  EXPECT_NE(verify({}, {}), "");
}

}  // namespace
}  // namespace mccl::schedule
