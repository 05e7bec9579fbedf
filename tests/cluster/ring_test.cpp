// Compares the search for rings with a brute-force search through all orders of the hosts.
#include "cluster/ring.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <random>

#include "mccl/error.h"

namespace mccl::cluster {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

double slowest_of(const Capacities& capacities, const std::vector<int>& order) {
  double slowest = 1e9;
  for (std::size_t i = 0; i < order.size(); ++i)
    slowest = std::min(slowest, capacities.between(order[i], order[(i + 1) % order.size()]));
  return slowest;
}

/// Returns the best rate of the slowest pair over all orders, or 0 if no order is a ring.
double by_brute_force(const Capacities& capacities) {
  std::vector<int> order(static_cast<std::size_t>(capacities.size()));
  std::iota(order.begin(), order.end(), 0);
  double best = 0;
  do {
    best = std::max(best, slowest_of(capacities, order));
  } while (std::next_permutation(order.begin() + 1, order.end()));
  return best;
}

/// Returns the smallest number of pairs without a cable over all orders.
int fewest_missing(const Capacities& capacities) {
  std::vector<int> order(static_cast<std::size_t>(capacities.size()));
  std::iota(order.begin(), order.end(), 0);
  int fewest = capacities.size();
  do {
    int missing = 0;
    for (std::size_t i = 0; i < order.size(); ++i)
      if (capacities.between(order[i], order[(i + 1) % order.size()]) <= 0) ++missing;
    fewest = std::min(fewest, missing);
  } while (std::next_permutation(order.begin() + 1, order.end()));
  return fewest;
}

Capacities random_cables(std::mt19937& random, int size, int percent) {
  Capacities capacities(size);
  for (int a = 0; a < size; ++a)
    for (int b = a + 1; b < size; ++b)
      if (static_cast<int>(random() % 100) < percent)
        capacities.add(a, b, 10'000 * static_cast<double>(1 + random() % 4));
  return capacities;
}

Capacities ring_of(int size) {
  Capacities capacities(size);
  for (int i = 0; i < size; ++i) capacities.add(i, (i + 1) % size, 40'000);
  return capacities;
}

TEST(Ring, IsAsGoodAsTheBestOfAllOrders) {
  std::mt19937 random(7);
  for (int round = 0; round < 400; ++round) {
    const int size = 3 + static_cast<int>(random() % 5);
    const Capacities capacities = random_cables(random, size, 20 + static_cast<int>(random() % 75));
    const RingAnswer answer = best_ring(capacities);
    ASSERT_TRUE(answer.proved);
    ASSERT_EQ(answer.slowest, by_brute_force(capacities)) << "round " << round;
    ASSERT_TRUE(answer.fewest);
    if (answer.order.empty()) {
      ASSERT_EQ(static_cast<int>(answer.missing.size()), fewest_missing(capacities))
          << "round " << round;
      Capacities repaired = capacities;
      for (const auto& [a, b] : answer.missing) {
        ASSERT_EQ(capacities.between(a, b), 0);
        repaired.add(a, b, 1);
      }
      ASSERT_FALSE(best_ring(repaired).order.empty());
    } else {
      std::vector<int> hosts = answer.order;
      ASSERT_EQ(slowest_of(capacities, hosts), answer.slowest);
      std::ranges::sort(hosts);
      ASSERT_TRUE(std::ranges::adjacent_find(hosts) == hosts.end());
      ASSERT_EQ(static_cast<int>(hosts.size()), size);
    }
  }
}

TEST(Ring, OfEightHostsIsAsGoodAsTheBestOfAllOrders) {
  std::mt19937 random(11);
  for (int round = 0; round < 12; ++round) {
    const Capacities capacities = random_cables(random, 8, 30 + static_cast<int>(random() % 40));
    ASSERT_EQ(best_ring(capacities).slowest, by_brute_force(capacities)) << "round " << round;
  }
}

TEST(Ring, OfOneOrTwoHosts) {
  EXPECT_THAT(best_ring(Capacities(1)).order, ElementsAre(0));
  Capacities two(2);
  EXPECT_THAT(best_ring(two).missing, ElementsAre(Pair{0, 1}));
  two.add(0, 1, 40'000);
  EXPECT_THAT(best_ring(two).order, ElementsAre(0, 1));
}

TEST(Ring, OfManyHostsIsFound) {
  const RingAnswer answer = best_ring(ring_of(64));
  EXPECT_TRUE(answer.proved);
  EXPECT_EQ(answer.order.size(), 64U);
  std::mt19937 random(3);
  const Capacities dense = random_cables(random, 64, 60);
  EXPECT_EQ(best_ring(dense).order.size(), 64U);
}

TEST(Ring, FindsARingOfManyHostsWithFewCables) {
  std::mt19937 random(5);
  for (int round = 0; round < 10; ++round) {
    std::vector<int> order(64);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    Capacities capacities(64);
    for (std::size_t i = 0; i < order.size(); ++i)
      capacities.add(order[i], order[(i + 1) % order.size()], 40'000);
    for (int more = 0; more < 32; ++more) {
      const int a = static_cast<int>(random() % 64);
      const int b = static_cast<int>(random() % 64);
      if (a != b) capacities.add(a, b, 40'000);
    }
    EXPECT_EQ(best_ring(capacities).order.size(), 64U) << "round " << round;
  }
}

TEST(Ring, ProvesThatThereIsNone) {
  // The cables form two rings that share one host, so no ring contains all hosts.
  Capacities eight(63);
  for (int i = 0; i < 32; ++i) eight.add(i, (i + 1) % 32, 1);
  for (int i = 31; i < 62; ++i) eight.add(i, i + 1, 1);
  eight.add(62, 31, 1);
  const RingAnswer answer = best_ring(eight);
  EXPECT_TRUE(answer.proved);
  EXPECT_THAT(answer.order, IsEmpty());
  EXPECT_EQ(answer.missing.size(), 1U);
}

/// The search proves quickly that there is no ring. Finding the smallest number of missing cables
/// is harder, and the search may give up on it.
TEST(Ring, ProvesThatThereIsNoneIfAHostHasOneCable) {
  std::mt19937 random(13);
  for (int round = 0; round < 10; ++round) {
    Capacities cables = random_cables(random, 63, 4);
    Capacities capacities(64);
    for (int a = 0; a < 63; ++a)
      for (int b = 0; b < a; ++b) capacities.add(a, b, cables.between(a, b));
    capacities.add(63, round, 10'000);
    const RingAnswer answer = best_ring(capacities);
    ASSERT_TRUE(answer.proved) << "round " << round;
    ASSERT_TRUE(answer.order.empty());
    ASSERT_FALSE(answer.missing.empty());
    for (const auto& [a, b] : answer.missing) {
      ASSERT_EQ(capacities.between(a, b), 0);
      capacities.add(a, b, 1);
    }
    ASSERT_EQ(best_ring(capacities).order.size(), 64U) << "round " << round;
  }
}

/// The cables form two meshes that share one host.
TEST(Ring, GivesUpAfterManySteps) {
  Capacities capacities(41);
  for (int first : {0, 20})
    for (int a = first; a <= first + 20; ++a)
      for (int b = first; b < a; ++b) capacities.add(a, b, 1);
  const RingAnswer answer = best_ring(capacities);
  EXPECT_FALSE(answer.proved);
  EXPECT_THAT(answer.order, IsEmpty());
  EXPECT_EQ(answer.missing.size(), 1U);
}

TEST(Ring, NamesTheCableThatALineLacks) {
  Capacities line(64);
  for (int i = 0; i + 1 < 64; ++i) line.add(i, i + 1, 1);
  EXPECT_THAT(best_ring(line).missing, ElementsAre(Pair{0, 63}));
}

TEST(Ring, NamesAllCablesForHostsWithoutAny) {
  EXPECT_EQ(best_ring(Capacities(64)).missing.size(), 64U);
}

TEST(Ring, NamesTheCablesThatAStarLacks) {
  Capacities star(16);
  for (int i = 1; i < 16; ++i) star.add(0, i, 1);
  EXPECT_EQ(best_ring(star).missing.size(), 14U);
}

TEST(Ring, CountsSeveralCablesOfAPairTogether) {
  Capacities capacities = ring_of(3);
  capacities.add(0, 1, 40'000);
  EXPECT_EQ(capacities.between(1, 0), 80'000);
}

TEST(Ring, RefusesTooManyHosts) {
  EXPECT_THROW(best_ring(Capacities(kMostRingHosts + 1)), InvalidArgument);
}

TEST(Mesh, OmitsPairsWithoutACable) {
  EXPECT_THAT(missing_of_mesh(ring_of(4)), ElementsAre(Pair{0, 2}, Pair{1, 3}));
  EXPECT_THAT(missing_of_mesh(ring_of(3)), IsEmpty());
}

}  // namespace
}  // namespace mccl::cluster
