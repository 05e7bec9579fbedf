// Runs schedules on numbers in random orders. The results must match what the verifier proves.
#include "replay.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "cases.h"

namespace mccl::schedule {
namespace {

/// Returns whole numbers, whose sums are exact.
double given(int rank, std::size_t element) {
  return static_cast<double>((rank + 1) * 1000 + static_cast<int>(element % 997));
}

std::size_t given_count(const Problem& p) {
  const bool at_root = p.rank == p.root;
  switch (p.collective) {
    case Collective::all_reduce:
    case Collective::reduce:
      return p.count;
    case Collective::all_gather:
    case Collective::gather:
      return p.counts[p.rank];
    case Collective::scatter:
      return at_root ? displacement(p.counts, p.size) : 0;
    case Collective::reduce_scatter:
    case Collective::all_to_all:
      return displacement(p.counts, p.size);
    default:
      return 0;
  }
}

double summed(int size, std::size_t element) {
  double sum = 0;
  for (int rank = 0; rank < size; ++rank) sum += given(rank, element);
  return sum;
}

std::vector<double> expected(const std::vector<Problem>& problems, int rank) {
  const Problem& p = problems[rank];
  const bool at_root = p.rank == p.root;
  std::vector<double> result;
  const auto add = [&](std::size_t count, auto value) {
    for (std::size_t k = 0; k < count; ++k) result.push_back(value(k));
  };
  switch (p.collective) {
    case Collective::all_reduce:
      add(p.count, [&](std::size_t k) { return summed(p.size, k); });
      break;
    case Collective::reduce:
      if (at_root) add(p.count, [&](std::size_t k) { return summed(p.size, k); });
      break;
    case Collective::broadcast:
      add(p.count, [&](std::size_t k) { return given(p.root, k); });
      break;
    case Collective::gather:
      if (!at_root) break;
      [[fallthrough]];
    case Collective::all_gather:
      for (int r = 0; r < p.size; ++r) {
        add(p.counts[r], [&](std::size_t k) { return given(r, k); });
      }
      break;
    case Collective::scatter:
      add(p.counts[rank],
          [&](std::size_t k) { return given(p.root, displacement(p.counts, rank) + k); });
      break;
    case Collective::reduce_scatter:
      add(p.counts[rank],
          [&](std::size_t k) { return summed(p.size, displacement(p.counts, rank) + k); });
      break;
    case Collective::all_to_all:
      for (int r = 0; r < p.size; ++r) {
        add(p.recv_counts[r],
            [&](std::size_t k) { return given(r, displacement(problems[r].counts, rank) + k); });
      }
      break;
    default:
      break;
  }
  return result;
}

void replay(Algorithm algorithm, const Case& c, unsigned seed) {
  const std::vector<Problem> problems = problems_of(c);
  const std::vector<Schedule> schedules = build_all(algorithm, problems);
  Replay replay(problems, schedules, seed);
  for (const Problem& p : problems) {
    for (std::size_t k = 0; k < given_count(p); ++k) replay.input(p.rank)[k] = given(p.rank, k);
    if (p.collective == Collective::broadcast && p.rank == p.root) {
      for (std::size_t k = 0; k < p.count; ++k) replay.output(p.rank)[k] = given(p.rank, k);
    }
  }
  ASSERT_TRUE(replay.run()) << describe(algorithm, c);
  for (const Problem& p : problems) {
    const std::vector<double> wanted = expected(problems, p.rank);
    const double* found = replay.output(p.rank);
    ASSERT_EQ(std::vector<double>(found, found + wanted.size()), wanted)
        << "rank " << p.rank << ", " << describe(algorithm, c);
    for (std::size_t k = 0; k < given_count(p) && !p.in_place; ++k) {
      ASSERT_EQ(replay.input(p.rank)[k], given(p.rank, k))
          << "input of rank " << p.rank << ", " << describe(algorithm, c);
    }
  }
}

TEST(Replay, GivesTheRightNumbersInAnyOrder) {
  unsigned seed = 1;
  for (const Collective collective : kCollectives) {
    if (collective == Collective::barrier) continue;
    for (const int size : {1, 2, 3, 4, 6, 8, 9}) {
      for (const Algorithm algorithm : kAlgorithms) {
        for (int variant = 0; variant < 6; ++variant) {
          Case c{.collective = collective, .size = size, .root = variant % size, .count = 61};
          if (has_parts(collective)) c.counts = parts_of(size, 17, variant % 3);
          c.chunk = variant < 3 ? 4 : 100;
          c.in_place = variant % 2 == 1;
          c.mixed = variant == 4;
          c.window = variant % 3 == 0 ? 20 : 200;
          for (const Placement placement : placements(algorithm)) {
            c.placement = placement;
            if (can(algorithm, problem_of(c, 0))) replay(algorithm, c, seed++);
            ASSERT_FALSE(HasFatalFailure());
          }
        }
      }
    }
  }
}

TEST(Replay, GivesTheRightNumbersFromBlocks) {
  unsigned seed = 1;
  for (const Collective collective : {Collective::all_reduce, Collective::reduce_scatter}) {
    for (const int size : {2, 3, 4, 8}) {
      for (int variant = 0; variant < 6; ++variant) {
        Case c{
            .collective = collective, .size = size, .count = 128 * 11 + 61, .codec = Codec::int8};
        if (has_parts(collective)) c.counts = parts_of(size, 300, variant % 3);
        c.chunk = variant < 3 ? 4 : 500;
        c.in_place = variant % 2 == 1;
        c.mixed = variant == 4;
        replay(Algorithm::direct, c, seed++);
        c.window = variant % 3 == 0 ? 20 : 2000;
        for (const Placement placement : placements(Algorithm::hierarchical)) {
          c.placement = placement;
          if (can(Algorithm::hierarchical, problem_of(c, 0)))
            replay(Algorithm::hierarchical, c, seed++);
        }
        ASSERT_FALSE(HasFatalFailure());
      }
    }
  }
}

/// Sums of numbers of very different magnitude depend on the order of addition.
TEST(Replay, GivesTheSameBitsOnEveryRank) {
  for (const int size : {2, 3, 5, 7, 8, 12}) {
    for (const Algorithm algorithm : kAlgorithms) {
      Case c{.collective = Collective::all_reduce, .size = size, .count = 97, .chunk = 5};
      c.mixed = true;
      c.window = 30;
      c.placement = placements(algorithm).back();
      if (!can(algorithm, problem_of(c, 0))) continue;
      const std::vector<Problem> problems = problems_of(c);
      const std::vector<Schedule> schedules = build_all(algorithm, problems);
      Replay replay(problems, schedules, 7);
      std::mt19937 random(static_cast<unsigned>(size));
      std::uniform_real_distribution<double> exponent(-30, 30);
      for (int rank = 0; rank < size; ++rank) {
        for (std::size_t k = 0; k < c.count; ++k) {
          replay.input(rank)[k] = std::ldexp(exponent(random), static_cast<int>(exponent(random)));
        }
      }
      ASSERT_TRUE(replay.run());
      for (int rank = 1; rank < size; ++rank) {
        EXPECT_EQ(std::memcmp(replay.output(rank), replay.output(0), c.count * sizeof(double)), 0)
            << "rank " << rank << ", " << describe(algorithm, c);
      }
    }
  }
}

}  // namespace
}  // namespace mccl::schedule
