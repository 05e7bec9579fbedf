#include "schedule/choose.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "cases.h"
#include "support/verifier/verify.h"

namespace mccl::schedule {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

Choice choose_f32(Collective collective, int size, std::size_t bytes, const Facts& facts = {}) {
  return choose(problem_of(call(collective, size, bytes), 0), 4, facts);
}

TEST(Choose, IsTheSameForEveryRank) {
  for (const Collective collective : kCollectives) {
    for (const int size : {1, 2, 3, 8, 12, 33}) {
      for (const std::size_t bytes : {std::size_t{0}, std::size_t{4}, kMiB / 10, 40 * kMiB}) {
        Case c = call(collective, size, bytes);
        c.mixed = true;  // in place on odd ranks, and uneven in all_to_all
        if (has_parts(collective)) c.counts = parts_of(size, bytes / 4 / size, 1);
        const Choice first = choose(problem_of(c, 0), 4, {});
        EXPECT_TRUE(can(first.algorithm, problem_of(c, 0)));
        EXPECT_GE(first.chunk, 1u);
        EXPECT_LE(first.chunk * 4, Facts{}.chunk_bytes);
        EXPECT_GE(first.predicted_s, 0);
        for (int rank = 1; rank < size; ++rank) {
          const Choice other = choose(problem_of(c, rank), 4, {});
          EXPECT_EQ(other.algorithm, first.algorithm);
          EXPECT_EQ(other.chunk, first.chunk);
          EXPECT_EQ(other.predicted_s, first.predicted_s);
        }
      }
    }
  }
}

TEST(Choose, IgnoresTheCountsOfAnUnevenAllToAll) {
  for (const int size : {2, 8, 9, 30}) {
    Case c = call(Collective::all_to_all, size, 4);
    c.mixed = true;
    const Choice small = choose(problem_of(c, 0), 4, {});
    c.count = 64 * kMiB;
    const Choice large = choose(problem_of(c, 0), 4, {});
    EXPECT_EQ(small.algorithm, large.algorithm);
    EXPECT_EQ(small.chunk, large.chunk);
  }
}

TEST(Choose, IgnoresTheRequestedChunk) {
  Problem p = problem_of(call(Collective::all_reduce, 4, 8 * kMiB), 0);
  const Choice first = choose(p, 4, {});
  p.chunk = 12345;
  EXPECT_EQ(choose(p, 4, {}).chunk, first.chunk);
}

TEST(Choose, SendsSmallAllReducesDirectly) {
  for (const int size : {1, 2, 3, 4, 8}) {
    EXPECT_EQ(choose_f32(Collective::all_reduce, size, 4).algorithm, Algorithm::direct);
    EXPECT_EQ(choose_f32(Collective::all_reduce, size, 65532).algorithm, Algorithm::direct);
  }
  EXPECT_EQ(choose_f32(Collective::all_reduce, 64, 4).algorithm, Algorithm::recursive_doubling);
  EXPECT_NE(choose_f32(Collective::all_reduce, 4, 65536).algorithm, Algorithm::direct);
  EXPECT_NE(choose_f32(Collective::all_reduce, 4, 32768, {.small_bytes = 1024}).algorithm,
            Algorithm::direct);
}

TEST(Choose, PipelinesLargeBuffers) {
  for (const int size : {2, 3, 4, 8, 16}) {
    const Choice choice = choose_f32(Collective::all_reduce, size, 256 * kMiB);
    EXPECT_EQ(choice.algorithm, Algorithm::ring) << size;
    EXPECT_GE(choice.chunk * 4, 128u << 10);
    EXPECT_LE(choice.chunk * 4, 1u << 20);
    EXPECT_EQ(choose_f32(Collective::broadcast, size, 256 * kMiB).algorithm,
              size == 2 ? Algorithm::direct : Algorithm::chain)
        << size;
  }
}

TEST(Choose, UsesTheForcedAlgorithmIfPossible) {
  Facts facts;
  facts.forced = Algorithm::chain;
  EXPECT_EQ(choose_f32(Collective::all_reduce, 4, 4, facts).algorithm, Algorithm::chain);
  EXPECT_EQ(choose_f32(Collective::reduce, 4, kMiB, facts).algorithm, Algorithm::chain);
  EXPECT_NE(choose_f32(Collective::all_to_all, 4, kMiB, facts).algorithm, Algorithm::chain);
  EXPECT_EQ(choose_f32(Collective::all_reduce, 1, kMiB, facts).algorithm, Algorithm::direct);
  facts.forced = Algorithm::pairwise;
  EXPECT_EQ(choose_f32(Collective::all_to_all, 4, kMiB, facts).algorithm, Algorithm::pairwise);
}

TEST(Choose, RespectsTheLargestMessage) {
  for (const std::size_t chunk_bytes : {std::size_t{0}, std::size_t{1}, std::size_t{1000},
                                        std::size_t{65536}, std::size_t{100000}, SIZE_MAX}) {
    for (const Collective collective : kCollectives) {
      const Choice choice = choose_f32(collective, 4, 8 * kMiB, {.chunk_bytes = chunk_bytes});
      EXPECT_GE(choice.chunk, 1u);
      EXPECT_LE(choice.chunk, std::max<std::size_t>(1, chunk_bytes / 4));
    }
  }
}

/// This holds for any number of steps, since a piece is as large as the cache allows.
TEST(Choose, UsesTheWindowOfANodeAtEverySize) {
  for (const int size : {2, 4}) {
    Facts facts;
    facts.nodes.assign(static_cast<std::size_t>(size), 0);
    facts.window_bytes = kMiB;
    for (const Collective collective : {Collective::all_reduce, Collective::broadcast,
                                        Collective::all_gather, Collective::reduce_scatter}) {
      for (const std::size_t bytes : {std::size_t{8}, kMiB, 64 * kMiB, 256 * kMiB, 1024 * kMiB}) {
        const Choice choice = choose_f32(collective, size, bytes, facts);
        EXPECT_TRUE(choice.algorithm == Algorithm::one_shot ||
                    choice.algorithm == Algorithm::two_shot)
            << name_of(choice.algorithm) << " for collective " << static_cast<int>(collective)
            << " of " << bytes << " bytes among " << size;
        EXPECT_LT(choice.predicted_s, 100);
      }
    }
  }
}

TEST(Choose, KeepsSchedulesShort) {
  for (const Collective collective : kCollectives) {
    for (const int size : {1, 2, 4, 8, 16}) {
      for (const std::size_t bytes : {kMiB, 64 * kMiB, 512 * kMiB}) {
        if (collective == Collective::all_to_all) continue;  // ignores the number of bytes
        for (const Algorithm forced : kAlgorithms) {
          Facts facts;
          facts.forced = forced;
          Case c = call(collective, size, bytes);
          const Problem p = problem_of(c, 0);
          if (!can(forced, p)) continue;
          c.chunk = choose(p, 4, facts).chunk;
          if (c.chunk * 4 == facts.chunk_bytes) continue;
          for (const int rank : {0, size - 1}) {
            EXPECT_LE(build(forced, problem_of(c, rank)).steps.size(), 4500u)
                << describe(forced, c);
          }
        }
      }
    }
  }
}

/// In a window, each piece takes a step with every rank.
TEST(Choose, KeepsSchedulesShortOnANodeOfManyRanks) {
  for (const int size : {16, 64, 256, 1024}) {
    Facts facts;
    facts.nodes.assign(static_cast<std::size_t>(size), 0);
    facts.window_bytes = kMiB;
    for (const Collective collective :
         {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather}) {
      Case c = call(collective, size, 1024 * kMiB);
      Problem p = problem_of(c, 0);
      const Choice choice = choose(p, 4, facts);
      p = placed(p, 4, facts);
      p.chunk = choice.chunk;
      EXPECT_LE(build(choice.algorithm, p).steps.size(), 600'000U)
          << name_of(choice.algorithm) << ", " << size << " ranks";
    }
  }
}

/// The schedules chosen by default are correct at real sizes.
TEST(Choose, ChoosesSchedulesThatVerify) {
  for (const Collective collective : kCollectives) {
    for (const int size : {2, 3, 4, 8}) {
      for (const std::size_t bytes : {std::size_t{4000}, 300000 + std::size_t{4}, 20 * kMiB + 12}) {
        Case c = call(collective, size, bytes);
        const Choice choice = choose(problem_of(c, 0), 4, {});
        c.chunk = choice.chunk;
        const std::vector<Problem> problems = problems_of(c);
        EXPECT_EQ(verify(problems, build_all(choice.algorithm, problems)), "")
            << describe(choice.algorithm, c);
      }
    }
  }
}

/// Regression test for fault 28 of the earlier system: a reduce-scatter in which one rank received
/// everything.
TEST(Choose, ALargeReduceScatterLoadsAllRanksEqually) {
  for (const int size : {2, 3, 4, 8, 16}) {
    const std::size_t part = 4 * kMiB;
    Case c{
        .collective = Collective::reduce_scatter, .size = size, .counts = parts_of(size, part, 0)};
    const Choice choice = choose(problem_of(c, 0), 4, {});
    c.chunk = choice.chunk;
    for (int rank = 0; rank < size; ++rank) {
      std::size_t sent = 0;
      std::size_t received = 0;
      for (const Step& step : build(choice.algorithm, problem_of(c, rank)).steps) {
        if (step.kind == StepKind::send) sent += step.src.count;
        if (step.kind == StepKind::recv || step.kind == StepKind::recv_reduce) {
          received += step.dst.count;
        }
      }
      const std::size_t others = static_cast<std::size_t>(size) - 1;
      EXPECT_EQ(sent, others * part) << describe(choice.algorithm, c) << ", rank " << rank;
      EXPECT_EQ(received, others * part) << describe(choice.algorithm, c) << ", rank " << rank;
    }
  }
}

/// In a group of four, a rank that adds everything itself copies nearly twice as much as one that
/// adds a part. It synchronises with the others half as often.
TEST(Choose, SynchronisesLessOftenIfItIsExpensive) {
  Facts facts;
  facts.nodes.assign(4, 0);
  facts.window_bytes = kMiB;
  facts.ranks_per_core = 2;
  facts.switch_s = 1e-6;
  EXPECT_EQ(choose_f32(Collective::all_reduce, 4, 64 << 10, facts).algorithm, Algorithm::two_shot);
  facts.switch_s = 20e-6;
  EXPECT_EQ(choose_f32(Collective::all_reduce, 4, 64 << 10, facts).algorithm, Algorithm::one_shot);
}

/// The setting's description promises this.
TEST(Choose, TheSmallMessageThresholdAppliesIfNoTwoRanksShareMemory) {
  for (const bool shared : {false, true}) {
    Facts none, all;
    if (shared) none.nodes = all.nodes = {0, 0, 0, 0};
    none.window_bytes = all.window_bytes = shared ? 8 * kMiB : 0;
    none.small_bytes = 0;
    all.small_bytes = 64 * kMiB;
    const Choice without = choose_f32(Collective::all_reduce, 4, kMiB, none);
    const Choice with = choose_f32(Collective::all_reduce, 4, kMiB, all);
    EXPECT_EQ(with.algorithm == Algorithm::direct, !shared);
    EXPECT_EQ(with.algorithm == without.algorithm, shared);
  }
}

struct Pinned {
  Collective collective;
  int size;
  std::size_t bytes;
  Algorithm algorithm;
};

Facts network(double latency_s, double bytes_per_s, double message_work_s) {
  return {.latency_s = latency_s, .bytes_per_s = bytes_per_s, .message_work_s = message_work_s};
}

void expect_choices(const Facts& facts, const std::vector<Pinned>& choices) {
  for (const Pinned& each : choices) {
    Facts of_group = facts;
    of_group.nodes.resize(std::min<std::size_t>(facts.nodes.size(), each.size));
    EXPECT_EQ(name_of(choose_f32(each.collective, each.size, each.bytes, of_group).algorithm),
              name_of(each.algorithm))
        << "collective " << static_cast<int>(each.collective) << " of " << each.bytes
        << " bytes among " << each.size;
  }
}

/// Changes of the cost model must not change these by accident.
TEST(Choose, ImportantChoicesOnNetworks) {
  using enum Collective;
  for (const Facts& facts : {network(15e-6, 2e9, 2e-6), network(30e-6, 1.25e9, 5e-6)}) {
    expect_choices(facts, {{all_reduce, 64, 1024, Algorithm::recursive_doubling},
                           {all_reduce, 4, 16 * kMiB, Algorithm::ring},
                           {all_reduce, 16, 256 * kMiB, Algorithm::ring},
                           {broadcast, 2, 16 * kMiB, Algorithm::direct},
                           {broadcast, 4, 16 * kMiB, Algorithm::chain},
                           {broadcast, 4, 1024, Algorithm::direct},
                           {reduce, 8, 16 * kMiB, Algorithm::chain},
                           {all_gather, 8, 16 * kMiB, Algorithm::ring},
                           {reduce_scatter, 8, 16 * kMiB, Algorithm::ring},
                           {gather, 4, 16 * kMiB, Algorithm::direct},
                           {scatter, 4, 16 * kMiB, Algorithm::direct},
                           {all_to_all, 4, 1024, Algorithm::direct},
                           {all_to_all, 16, 16 * kMiB, Algorithm::pairwise}});
  }
}

TEST(Choose, ImportantChoicesOnANodeAndOnSeveral) {
  using enum Collective;
  Facts node;
  node.nodes.assign(16, 0);
  node.window_bytes = kMiB;
  expect_choices(node, {{all_reduce, 4, 8, Algorithm::one_shot},
                        {all_reduce, 4, kMiB, Algorithm::two_shot},
                        {all_reduce, 2, 256 * kMiB, Algorithm::two_shot},
                        {reduce, 4, 8, Algorithm::one_shot},
                        {reduce, 4, 16 * kMiB, Algorithm::one_shot},
                        {reduce, 16, 16 * kMiB, Algorithm::two_shot}});
  Facts nodes = network(30e-6, 1.25e9, 5e-6);
  nodes.window_bytes = kMiB;
  for (int rank = 0; rank < 16; ++rank) nodes.nodes.push_back(rank / 4);
  expect_choices(nodes, {{all_reduce, 16, 8, Algorithm::hierarchical},
                         {all_reduce, 8, 16 * kMiB, Algorithm::hierarchical},
                         {broadcast, 8, 1024, Algorithm::hierarchical},
                         {broadcast, 16, 16 * kMiB, Algorithm::hierarchical}});
}

/// The estimate walks one rank, whatever the number of nodes. A walk of all ranks would take
/// seconds.
TEST(Choose, UsesTheHierarchyForAnyNumberOfNodes) {
  for (const int nodes : {2, 3, 5, 8, 13}) {
    Facts facts;
    facts.window_bytes = std::size_t{1} << 20;
    for (int rank = 0; rank < 8 * nodes; ++rank) facts.nodes.push_back(rank / 8);
    Problem problem;
    problem.collective = Collective::all_reduce;
    problem.size = 8 * nodes;
    problem.count = std::size_t{1} << 24;
    EXPECT_EQ(choose(problem, 4, facts).algorithm, Algorithm::hierarchical) << nodes;
  }
}

}  // namespace
}  // namespace mccl::schedule
