#include "engine/peers/liveness.h"

#include <gtest/gtest.h>

namespace mccl::engine {
namespace {

using std::chrono::seconds;

constexpr seconds kInterval{10};
const Clock::time_point kStart = Clock::time_point() + seconds(1000);

TEST(Liveness, ASilentPeerIsLostOnceAfterTheInterval) {
  Liveness liveness(3, kInterval);
  liveness.heard(WorldRank(1));
  liveness.heard(WorldRank(2));
  Clock::time_point now = kStart;
  std::vector<WorldRank> lost;
  while (lost.empty()) {
    liveness.heard(WorldRank(2));
    lost = liveness.beat(now);
    ASSERT_LE(now - kStart, 2 * kInterval);
    if (lost.empty()) now = liveness.next_beat();
  }
  EXPECT_EQ(lost, std::vector{WorldRank(1)});
  EXPECT_GE(now - kStart, kInterval);
  for (int i = 0; i < 20; ++i) {
    liveness.heard(WorldRank(2));
    EXPECT_TRUE(liveness.beat(now += seconds(2)).empty()) << "told twice";
  }
}

TEST(Liveness, WhoWasNeverHeardIsNotMissed) {
  Liveness liveness(2, kInterval);
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(liveness.beat(kStart + i * kInterval).empty());
}

TEST(Liveness, WhoIsForgottenIsNotMissed) {
  Liveness liveness(2, kInterval);
  liveness.heard(WorldRank(1));
  liveness.forget(WorldRank(1));
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(liveness.beat(kStart + i * kInterval).empty());
}

/// A process that was stopped for an hour has not listened for an hour.
TEST(Liveness, OnesOwnStopIsNobodysSilence) {
  Liveness liveness(2, kInterval);
  liveness.heard(WorldRank(1));
  EXPECT_TRUE(liveness.beat(kStart).empty());
  EXPECT_TRUE(liveness.beat(kStart + std::chrono::hours(1)).empty());
  liveness.heard(WorldRank(1));
  EXPECT_TRUE(liveness.beat(kStart + std::chrono::hours(2)).empty());
}

}  // namespace
}  // namespace mccl::engine
