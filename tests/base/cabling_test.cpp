#include "base/cabling.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <random>

#include "mccl/error.h"

namespace mccl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Cabling ring(int size) {
  std::vector<Cable> cables;
  for (int rank = 0; rank < size; ++rank) cables.push_back({.a = rank, .b = (rank + 1) % size});
  return {size, std::move(cables)};
}

TEST(Cabling, WithoutCablesEveryRankReachesEveryOther) {
  const Cabling cabling;
  EXPECT_TRUE(cabling.joins(3, 5));
  EXPECT_FALSE(cabling.joins(3, 3));
  EXPECT_EQ(cabling.next(3, 5), 5);
}

TEST(Cabling, TakesTheShorterRouteAroundARing) {
  const Cabling cabling = ring(6);
  EXPECT_TRUE(cabling.joins(0, 5));
  EXPECT_THAT(cabling.way(0, 2), ElementsAre(0, 1, 2));
  EXPECT_THAT(cabling.way(1, 5), ElementsAre(1, 0, 5));
  EXPECT_EQ(cabling.distance(0, 3), 3);
}

TEST(Cabling, AFullMeshMayConsistOfCablesOrOfASwitch) {
  EXPECT_TRUE(Cabling().is_one_network());
  EXPECT_FALSE(ring(4).is_one_network());
  EXPECT_FALSE(ring(3).is_one_network());
  std::vector<Cable> own = {{.a = 0, .b = 1, .at_a = "01", .at_b = "10"},
                            {.a = 1, .b = 2, .at_a = "12", .at_b = "21"},
                            {.a = 0, .b = 2, .at_a = "02", .at_b = "20"}};
  EXPECT_FALSE(Cabling(3, own).is_one_network());
  own[2].at_b = "21";
  EXPECT_TRUE(Cabling(3, own).is_one_network());
}

TEST(Cabling, OrdersTheEndsOfACableByRank) {
  const Cabling cabling(3, {{.a = 2, .b = 1, .at_a = "two", .at_b = "one"}});
  EXPECT_EQ(cabling.cables()[0], (Cable{.a = 1, .b = 2, .at_a = "one", .at_b = "two"}));
  EXPECT_EQ(text_of(cabling.cables()[0]), "the cable between rank 1 (one) and rank 2 (two)");
}

TEST(Cabling, ListsDisconnectedPartsLargestFirst) {
  const Cabling cabling(5, {{.a = 1, .b = 3}, {.a = 3, .b = 4}});
  EXPECT_THAT(cabling.parts(), ElementsAre(ElementsAre(1, 3, 4), ElementsAre(0), ElementsAre(2)));
  EXPECT_EQ(cabling.next(0, 1), -1);
  EXPECT_THAT(cabling.way(0, 1), ::testing::IsEmpty());
  EXPECT_EQ(cabling.distance(2, 2), 0);
}

TEST(Cabling, RefusesCablesThatJoinNoTwoRanks) {
  for (const auto& [a, b] : {std::pair(0, 0), std::pair(-1, 2), std::pair(1, 4)}) {
    const std::vector<Cable> cables = {{.a = a, .b = b}};
    EXPECT_THAT([&] { Cabling(4, cables); }, ::testing::ThrowsMessage<InvalidArgument>(
                                                 HasSubstr("two different ranks from 0 to 3")));
  }
}

/// In random cablings, every hop of a path is a cable, and every path is as short as one found by
/// Floyd-Warshall. Every rank on a path agrees on its next hop.
TEST(Cabling, RoutesAreShortestAndEqualOnAllRanks) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    const int size = 2 + static_cast<int>(random() % 9);
    std::vector<Cable> cables;
    std::vector<std::vector<int>> least(size, std::vector<int>(size, 1000));
    for (int i = 0; i < size; ++i) least[i][i] = 0;
    for (int count = static_cast<int>(random() % 14); count > 0; --count) {
      const int a = static_cast<int>(random() % size), b = static_cast<int>(random() % size);
      if (a == b) continue;
      cables.push_back({.a = a, .b = b});
      least[a][b] = least[b][a] = 1;
    }
    for (int k = 0; k < size; ++k)
      for (int i = 0; i < size; ++i)
        for (int j = 0; j < size; ++j)
          least[i][j] = std::min(least[i][j], least[i][k] + least[k][j]);
    const Cabling cabling(size, cables);
    for (int i = 0; i < size; ++i) {
      for (int j = 0; j < size; ++j) {
        ASSERT_EQ(cabling.distance(i, j), least[i][j] >= 1000 ? -1 : least[i][j]);
        const std::vector<int> way = cabling.way(i, j);
        ASSERT_EQ(static_cast<int>(way.size()), least[i][j] >= 1000 ? 0 : least[i][j] + 1);
        for (std::size_t hop = 0; hop + 1 < way.size(); ++hop) {
          ASSERT_TRUE(cabling.joins(way[hop], way[hop + 1]));
          ASSERT_EQ(cabling.next(way[hop], j), way[hop + 1]);
        }
      }
    }
  }
}

}  // namespace
}  // namespace mccl
