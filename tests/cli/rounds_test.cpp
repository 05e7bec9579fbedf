#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <vector>

#include "cli/hosts/link_tests.h"

namespace mccl::cli::hosts {
namespace {

using Pairs = std::vector<std::pair<int, int>>;

Pairs all_pairs(int hosts, int networks) {
  Pairs pairs;
  for (int a = 0; a < hosts; ++a)
    for (int b = 0; b < hosts; ++b)
      for (int network = 0; a != b && network < networks; ++network) pairs.emplace_back(a, b);
  return pairs;
}

/// Checks that each pair occurs once, and that no host is in two pairs of a round. Returns the
/// number of rounds.
std::size_t count_rounds(const Pairs& pairs) {
  std::set<std::size_t> seen;
  const auto rounds = rounds_of(pairs);
  for (const auto& round : rounds) {
    std::set<int> busy;
    for (const std::size_t i : round) {
      EXPECT_TRUE(seen.insert(i).second);
      EXPECT_TRUE(busy.insert(pairs[i].first).second);
      EXPECT_TRUE(busy.insert(pairs[i].second).second);
    }
  }
  EXPECT_EQ(seen.size(), pairs.size());
  return rounds.size();
}

TEST(Rounds, AllPairsNeedTheFewestRounds) {
  for (int hosts = 2; hosts <= 33; ++hosts) {
    const auto least = static_cast<std::size_t>(2 * (hosts % 2 == 0 ? hosts - 1 : hosts));
    EXPECT_EQ(count_rounds(all_pairs(hosts, 1)), least) << hosts;
    EXPECT_LE(count_rounds(all_pairs(hosts, 3)), 3 * least) << hosts;
  }
}

TEST(Rounds, ARingNeedsFewRounds) {
  Pairs pairs;
  for (int host = 0; host < 64; ++host) {
    pairs.emplace_back(host, (host + 1) % 64);
    pairs.emplace_back((host + 1) % 64, host);
  }
  EXPECT_LE(count_rounds(pairs), 7U);
}

TEST(Rounds, ContainEveryPairOnce) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 100; ++trial) {
    Pairs pairs;
    const int hosts = 2 + static_cast<int>(random() % 20);
    std::vector<std::size_t> degree(static_cast<std::size_t>(hosts), 0);
    for (int i = 0; i < 200; ++i) {
      const int a = static_cast<int>(random() % static_cast<unsigned>(hosts));
      const int b = static_cast<int>(random() % static_cast<unsigned>(hosts));
      if (a == b) continue;
      pairs.emplace_back(a, b);
      ++degree[static_cast<std::size_t>(a)];
      ++degree[static_cast<std::size_t>(b)];
    }
    EXPECT_LE(count_rounds(pairs), 2 * *std::max_element(degree.begin(), degree.end()));
  }
  EXPECT_EQ(count_rounds({}), 0U);
}

}  // namespace
}  // namespace mccl::cli::hosts
