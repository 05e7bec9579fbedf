#include "base/call_clock.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>

namespace mccl {
namespace {

TEST(CallClock, ReadsTheCounterForEveryCallIfThatIsFast) {
  CallClock clock(true);
  for (int i = 0; i < 1000; ++i) {
    const std::int64_t before = cycle_count();
    const std::int64_t count = clock.sparse_count(false);
    EXPECT_LE(before, count);
    EXPECT_LE(count, cycle_count());
  }
}

TEST(CallClock, ReadsTheCounterIfItIsDue) {
  CallClock clock(false);
  for (int i = 0; i < 1000; ++i) {
    const std::int64_t before = cycle_count();
    EXPECT_LE(before, clock.sparse_count(true));
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
    while (tick() == begun) reads += clock.sparse_count(false) != 0 ? 1 : 0;
    // The clock may tick between its reading here and its reading in sparse_count().
    EXPECT_LE(reads, 2);
    const std::int64_t before = cycle_count();
    const bool has_ticked = tick() != begun;
    EXPECT_TRUE(has_ticked);
    if (const std::int64_t count = clock.sparse_count(false); count != 0) EXPECT_LE(before, count);
  }
}
#endif

}  // namespace
}  // namespace mccl
