#include "schedule/log2_everywhere.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>

namespace mccl::schedule {
namespace {

TEST(Log2Everywhere, IsExactForPowersOfTwo) {
  for (int power = -30; power <= 60; ++power)
    EXPECT_EQ(log2_everywhere(std::ldexp(1.0, power)), power);
}

TEST(Log2Everywhere, AgreesWithTheLibraryButForTheLastPlaces) {
  for (double x = 1e-9; x < 1e12; x *= 1.37) {
    const double expected = std::log2(x);
    EXPECT_NEAR(log2_everywhere(x), expected, 1e-14 * std::max(1.0, std::abs(expected))) << x;
  }
}

TEST(Log2Everywhere, HasTheseBitsOnEveryMachine) {
  EXPECT_EQ(std::bit_cast<std::uint64_t>(log2_everywhere(3.0)), 0x3ff95c01a39fbd68u);
  EXPECT_EQ(std::bit_cast<std::uint64_t>(log2_everywhere(1e-9)), 0xc03de5b8eaa8d7e0u);
  EXPECT_EQ(std::bit_cast<std::uint64_t>(log2_everywhere(0.7)), 0xbfe0776228967d13u);
}

}  // namespace
}  // namespace mccl::schedule
