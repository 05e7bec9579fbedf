#include "schedule/cable_map.h"

#include <gmock/gmock.h>

#include "cable_shapes.h"

namespace mccl::schedule {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(CableMap, FindsARingForAnyOrderOfCables) {
  EXPECT_THAT(map_of(ring_of({0, 1, 2, 3})).ring(), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(map_of(ring_of({0, 3, 1, 4, 2, 5})).ring(), ElementsAre(0, 3, 1, 4, 2, 5));
}

TEST(CableMap, FindsNoRingIfThereIsNone) {
  for (const Shape& shape : shapes()) {
    const CableMap map = map_of(shape.cabling);
    const bool none = shape.name.starts_with("line") || shape.name.starts_with("star");
    const bool has = shape.name.starts_with("ring") || shape.name.starts_with("mesh");
    if (none) {
      EXPECT_THAT(map.ring(), IsEmpty()) << shape.name;
    }
    if (has) {
      EXPECT_EQ(static_cast<int>(map.ring().size()), map.size()) << shape.name;
    }
    for (std::size_t i = 0; i < map.ring().size(); ++i) {
      EXPECT_TRUE(map.joins(map.ring()[i], map.ring()[(i + 1) % map.ring().size()])) << shape.name;
    }
  }
}

TEST(CableMap, ARingTakesTheFastCables) {
  std::vector<Cable> cables = cabled(4, {{0, 1}, {1, 2}, {2, 3}, {3, 0}, {0, 2}, {1, 3}}).cables();
  for (Cable& cable : cables) {
    const bool slow = (cable.a == 0 && cable.b == 1) || (cable.a == 2 && cable.b == 3);
    cable.bytes_per_s = slow ? 1e8 : 1e9;
  }
  EXPECT_THAT(map_of(Cabling(4, cables)).ring(), ElementsAre(0, 2, 1, 3));
}

TEST(CableMap, EveryShapeHasATreeOfItsCables) {
  for (const Shape& shape : shapes()) {
    const CableMap map = map_of(shape.cabling);
    ASSERT_EQ(static_cast<int>(map.tree().size()), map.size()) << shape.name;
    EXPECT_EQ(std::ranges::count(map.tree(), -1), 1);
    for (int rank = 0; rank < map.size(); ++rank) {
      const int above = map.tree()[static_cast<std::size_t>(rank)];
      EXPECT_TRUE(above < 0 || map.joins(rank, above)) << shape.name;
    }
  }
}

TEST(CableMap, ATreeOfALineBeginsInItsMiddle) {
  EXPECT_THAT(map_of(cabled(5, {{0, 1}, {1, 2}, {2, 3}, {3, 4}})).tree(),
              ElementsAre(1, 2, -1, 2, 3));
}

TEST(CableMap, ADisconnectedGroupHasNoTree) {
  const CableMap map(ring_of({0, 1, 2, 3}), {0, 2}, 20e-6, 125e6);
  EXPECT_THAT(map.tree(), IsEmpty());
  EXPECT_FALSE(map.joins(0, 1));
  EXPECT_DOUBLE_EQ(map.way(0, 1).latency_s, 40e-6);
}

/// Returns the seconds for which a byte occupies each direction that it takes, in order.
std::map<std::size_t, double> directions(const CableMap& map, int from, int to) {
  const auto found = map.way(from, to).directions;
  return {found.begin(), found.end()};
}

TEST(CableMap, AMessageOccupiesOneDirectionOfEachCableOfItsRoute) {
  const CableMap map = map_of(cabled(4, {{0, 1}, {1, 2}, {2, 3}}));
  EXPECT_EQ(map.directions(), 6U);
  const auto there = directions(map, 0, 3);
  const auto back = directions(map, 3, 0);
  EXPECT_EQ(there.size(), 3U);
  for (const auto& [direction, byte_s] : there) {
    EXPECT_DOUBLE_EQ(byte_s, 1 / 125e6);
    EXPECT_FALSE(back.contains(direction)) << "cables are full duplex";
  }
  const auto first = directions(map, 0, 1);
  ASSERT_EQ(first.size(), 1U);
  EXPECT_TRUE(there.contains(first.begin()->first));
}

TEST(CableMap, ParallelCablesShareTheTrafficOfTheirPair) {
  std::vector<Cable> cables = cabled(3, {{0, 1}, {0, 1}, {1, 2}}).cables();
  cables[0].bytes_per_s = 100e6;
  cables[1].bytes_per_s = 300e6;
  const auto found = directions(map_of(Cabling(3, cables)), 0, 1);
  ASSERT_EQ(found.size(), 2U);
  for (const auto& [direction, byte_s] : found) EXPECT_DOUBLE_EQ(byte_s, 1 / 400e6);
}

TEST(CableMap, RanksOfOneHostShareItsCables) {
  const std::vector<Cable> cables = {{.a = 0, .b = 2, .at_a = "x", .at_b = "y"},
                                     {.a = 1, .b = 2, .at_a = "x", .at_b = "y"},
                                     {.a = 0, .b = 1, .at_a = "x", .at_b = "x"},
                                     {.a = 2, .b = 3, .at_a = "u", .at_b = "v"}};
  const CableMap map = map_of(Cabling(4, cables));
  EXPECT_EQ(directions(map, 0, 2), directions(map, 1, 2));
}

}  // namespace
}  // namespace mccl::schedule
