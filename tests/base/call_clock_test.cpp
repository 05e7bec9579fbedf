#include "base/call_clock.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>

namespace mccl {
namespace {

TEST(CallClock, ReadsTheCounterForEveryCallIfThatIsFast) {
  CallClock clock(true);
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const std::int64_t before = cycle_count();
    const std::int64_t count = clock.sparse_count(i);
    EXPECT_LE(before, count);
    EXPECT_LE(count, cycle_count());
  }
}

TEST(CallClock, ReadsASlowCounterForOneCallInSixteen) {
  CallClock clock(false);
  for (std::uint64_t number = 0; number < 16'000; number += CallClock::kTimedEvery) {
    const std::int64_t before = cycle_count();
    EXPECT_LE(before, clock.sparse_count(number));
  }
}

#ifdef CLOCK_MONOTONIC_COARSE
std::pair<std::time_t, long> tick() {
  timespec now = {};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return {now.tv_sec, now.tv_nsec};
}

TEST(CallClock, ReadsASlowCounterOnceBetweenTwoTicksOfTheCoarseClock) {
  CallClock clock(false);
  for (int i = 0; i < 20; ++i) {
    const auto begun = tick();
    int reads = 0;
    while (tick() == begun) reads += clock.sparse_count(4) != 0 ? 1 : 0;
    // The clock may tick between its reading here and its reading in sparse_count().
    EXPECT_LE(reads, 2);
  }
}

TEST(CallClock, ReadsASlowCounterWithinFourCallsAfterATick) {
  CallClock clock(false);
  std::uint64_t number = 1;
  for (int i = 0; i < 20; ++i) {
    clock.sparse_count(CallClock::kTimedEvery);
    for (const auto begun = tick(); tick() == begun;) {
    }
    const std::uint64_t first = number;
    while (clock.sparse_count(number++) == 0) ASSERT_LT(number - first, 4U);
  }
}
#endif

}  // namespace
}  // namespace mccl
