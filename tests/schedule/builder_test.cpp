#include "schedule/builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "cases.h"
#include "mccl/error.h"

namespace mccl::schedule {
namespace {

using ::testing::ElementsAre;

Problem all_reduce(std::size_t count, bool in_place = false) {
  return problem_of({.size = 3, .count = count, .chunk = 4, .in_place = in_place}, 0);
}

std::vector<std::uint32_t> successors(const Schedule& s, std::size_t step) {
  return {s.successors.begin() + s.successor_begin[step],
          s.successors.begin() + s.successor_begin[step + 1]};
}

TEST(Builder, OrdersReadsAndWritesOfTheSameMemory) {
  ScheduleBuilder b(all_reduce(8));
  b.recv(1, output({0, 4}));                // 0
  b.send(2, output({0, 2}));                // 1 reads what 0 wrote
  b.send(1, output({2, 2}));                // 2 reads what 0 wrote
  b.recv(2, output({1, 2}));                // 3 overwrites what 1 and 2 read
  b.recv(1, output({4, 4}));                // 4 touches other memory
  b.copy(output({0, 8}), scratch({0, 8}));  // 5 reads what 0, 3 and 4 wrote
  const Schedule s = b.finish();
  EXPECT_THAT(s.waits, ElementsAre(0, 1, 1, 2, 0, 3));
  EXPECT_THAT(successors(s, 0), ElementsAre(1, 2, 5));
  EXPECT_THAT(successors(s, 1), ElementsAre(3));
  EXPECT_THAT(successors(s, 2), ElementsAre(3));
  EXPECT_THAT(successors(s, 3), ElementsAre(5));
  EXPECT_THAT(successors(s, 4), ElementsAre(5));
}

TEST(Builder, KeepsInputAndOutputApartUnlessInPlace) {
  for (const bool in_place : {false, true}) {
    ScheduleBuilder b(all_reduce(4, in_place));
    b.send(1, input({0, 4}));
    b.recv(2, output({0, 4}));
    EXPECT_THAT(b.finish().waits, ElementsAre(0, in_place ? 1 : 0));
  }
}

TEST(Builder, ComputesThePositionOfAPart) {
  Problem p = problem_of(
      {.collective = Collective::reduce_scatter, .size = 3, .counts = {2, 3, 4}, .chunk = 9}, 1);
  p.in_place = true;
  ScheduleBuilder b(p);
  b.send(0, input({0, 2}));   // 0: before this rank's part
  b.send(2, input({4, 2}));   // 1: the part's last element and one more
  b.recv(0, output({0, 3}));  // 2: this rank's part, input[2..5)
  EXPECT_THAT(b.finish().waits, ElementsAre(0, 0, 1));
}

TEST(Builder, DropsEmptySteps) {
  ScheduleBuilder b(all_reduce(4, true));
  b.copy(input({0, 4}), output({0, 4}));
  b.send(1, output({0, 0}));
  b.recv(1, output({0, 0}));
  b.recv_reduce(1, output({0, 0}), output({0, 0}));
  b.copy(output({0, 0}), scratch({0, 0}));
  EXPECT_TRUE(b.finish().steps.empty());
}

TEST(Builder, CutsIntoChunks) {
  ScheduleBuilder b(all_reduce(10));
  EXPECT_EQ(b.pieces(10), 3u);
  EXPECT_EQ(b.pieces(0), 0u);
  EXPECT_EQ(b.piece(output({5, 10}), 2), output({13, 2}));
  EXPECT_EQ(b.piece(output({5, 10}), 3).count, 0u);
  Problem huge = all_reduce(10);
  huge.chunk = SIZE_MAX;
  EXPECT_EQ(ScheduleBuilder(huge).chunk(), 10u);
}

TEST(Build, RefusesInvalidProblems) {
  const Problem good = all_reduce(10);
  EXPECT_NO_THROW(build(Algorithm::direct, good));
  Problem p = good;
  p.rank = 3;
  EXPECT_THROW(build(Algorithm::direct, p), InvalidArgument);
  p = good;
  p.root = -1;
  EXPECT_THROW(build(Algorithm::direct, p), InvalidArgument);
  p = good;
  p.chunk = 0;
  EXPECT_THROW(build(Algorithm::direct, p), InvalidArgument);
  p = good;
  p.collective = Collective::all_gather;
  EXPECT_THROW(build(Algorithm::direct, p), InvalidArgument);
  p.counts = {1, 2, 3};
  EXPECT_NO_THROW(build(Algorithm::direct, p));
  p.collective = Collective::all_to_all;
  p.recv_counts = {2, 2, 2};
  EXPECT_THROW(build(Algorithm::direct, p), InvalidArgument);
  EXPECT_THROW(build(Algorithm::chain, problem_of({.collective = Collective::barrier}, 0)),
               InvalidArgument);
  EXPECT_THROW(build(Algorithm::direct, problem_of({.collective = Collective::send}, 0)),
               InvalidArgument);
}

TEST(Build, IsPure) {
  const Problem p = all_reduce(100);
  const Schedule a = build(Algorithm::ring, p);
  const Schedule b = build(Algorithm::ring, p);
  EXPECT_EQ(a.waits, b.waits);
  EXPECT_EQ(a.successors, b.successors);
  EXPECT_EQ(a.steps.size(), b.steps.size());
}

TEST(Build, OneRankOnlyCopies) {
  Problem p = problem_of({.size = 1, .count = 10, .chunk = 16}, 0);
  const Schedule s = build(Algorithm::direct, p);
  ASSERT_EQ(s.steps.size(), 1u);
  EXPECT_EQ(s.steps[0].kind, StepKind::copy);
  EXPECT_TRUE(s.steps[0].completes);
  p.in_place = true;
  EXPECT_TRUE(build(Algorithm::direct, p).steps.empty());
}

TEST(Build, BoundsScratch) {
  for (const Algorithm algorithm : kAlgorithms) {
    for (const int size : {2, 3, 8}) {
      const Problem p = problem_of({.size = size, .count = 1 << 20, .chunk = 1024}, size - 1);
      if (!can(algorithm, p)) continue;
      EXPECT_LE(build(algorithm, p).scratch_count, kSlots * 1024 * static_cast<unsigned>(size))
          << name_of(algorithm);
    }
  }
}

/// The number of waits grows linearly with the number of pieces.
TEST(Build, NeedsFewWaits) {
  for (const Algorithm algorithm : kAlgorithms) {
    const Problem p = problem_of({.size = 4, .count = 1 << 20, .chunk = 1024}, 1);
    if (!can(algorithm, p)) continue;
    const Schedule s = build(algorithm, p);
    EXPECT_LE(s.successors.size(), 5 * s.steps.size()) << name_of(algorithm);
  }
}

TEST(NameOf, IsDifferentForEachAlgorithm) {
  for (const Algorithm a : kAlgorithms) {
    for (const Algorithm b : kAlgorithms) EXPECT_EQ(name_of(a) == name_of(b), a == b);
  }
}

TEST(Displacement, SumsThePrecedingCounts) {
  EXPECT_EQ(displacement({3, 0, 5}, 0), 0u);
  EXPECT_EQ(displacement({3, 0, 5}, 2), 3u);
  EXPECT_EQ(displacement({3, 0, 5}, 3), 8u);
}

}  // namespace
}  // namespace mccl::schedule
