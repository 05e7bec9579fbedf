#include "base/clock.h"

#include <gtest/gtest.h>

namespace mccl {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

TEST(MillisecondsUntil, IsATimeoutForPoll) {
  EXPECT_EQ(milliseconds_until(Clock::time_point::max()), -1);
  const int left = milliseconds_until(Clock::now() + milliseconds(5'000));
  EXPECT_GT(left, 0);
  EXPECT_LE(left, 5'000);
  EXPECT_EQ(milliseconds_until(Clock::now() + hours(24 * 365)), 1 << 30);
}

TEST(MillisecondsUntil, IsZeroOnceTheDeadlineHasPassed) {
  EXPECT_EQ(milliseconds_until(Clock::now()), 0);
  EXPECT_EQ(milliseconds_until(Clock::time_point::min()), 0);
}

}  // namespace
}  // namespace mccl
