#include <gtest/gtest.h>

#include <algorithm>

#include "engine/peers/heartbeats.h"

namespace mccl::engine {
namespace {

using std::chrono::seconds;

constexpr Clock::duration kInterval = seconds(10);
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
  EXPECT_GE(now - kStart, kInterval * 95 / 100);
  for (int i = 0; i < 20; ++i) {
    liveness.heard(WorldRank(2));
    EXPECT_TRUE(liveness.beat(now += kInterval / 5).empty()) << "the peer was reported lost twice";
  }
}

TEST(Liveness, APeerNeverHeardIsNotMissed) {
  Liveness liveness(2, kInterval);
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(liveness.beat(kStart + i * kInterval).empty());
}

/// A process may stop right after it has connected to the others.
TEST(Liveness, APeerThatNeverSendsIsLostAfterMeetingTimeAndInterval) {
  Liveness liveness(2, kInterval);
  liveness.expect(WorldRank(1), seconds(30));
  EXPECT_FALSE(liveness.hears(WorldRank(1)));
  Clock::time_point now = kStart;
  while (liveness.beat(now).empty()) {
    ASSERT_LE(now - kStart, seconds(50));
    now = liveness.next_beat();
  }
  EXPECT_GE(now - kStart, seconds(38));
}

TEST(Liveness, APeerHeardOnceHasOnlyTheInterval) {
  Liveness liveness(2, kInterval);
  liveness.expect(WorldRank(1), seconds(30));
  liveness.heard(WorldRank(1));
  Clock::time_point now = kStart;
  while (liveness.beat(now).empty()) {
    ASSERT_LE(now - kStart, seconds(12));
    now = liveness.next_beat();
  }
}

TEST(Liveness, AForgottenPeerIsNotMissed) {
  Liveness liveness(2, kInterval);
  liveness.heard(WorldRank(1));
  liveness.forget(WorldRank(1));
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(liveness.beat(kStart + i * kInterval).empty());
}

constexpr Clock::duration kPeriod = kInterval / Liveness::kBeats;
using Late = Clock::duration (*)(int beat);

/// Simulates a peer that beats until it stops. Beat i of this process runs late(i) after it is due.
/// Returns the time from the peer's stop until the peer is lost.
Clock::duration time_to_notice(Clock::duration peers_phase, Clock::duration stop, Late late) {
  Liveness liveness(2, kInterval);
  liveness.beat(kStart);
  liveness.heard(WorldRank(1));
  Clock::time_point peers_beat = kStart + peers_phase;
  for (int i = 0; i < 20 * Liveness::kBeats; ++i) {
    const Clock::time_point now = liveness.next_beat() + late(i);
    for (; peers_beat <= std::min(now, kStart + stop); peers_beat += kPeriod)
      liveness.heard(WorldRank(1));
    if (!liveness.beat(now).empty()) return now - (kStart + stop);
  }
  return Clock::duration::max();
}

TEST(Liveness, AStopIsNoticedAfterTheIntervalWhateverItsPhase) {
  const Late never = [](int) { return Clock::duration(); };
  const Late a_little = [](int beat) { return beat * 7 % 10 * (kPeriod / 40); };
  for (int phase = 0; phase < 20; ++phase) {
    for (int stop = 0; stop < 100; ++stop) {
      for (const Late late : {never, a_little}) {
        const Clock::duration took =
            time_to_notice(phase * kPeriod / 20, kInterval + stop * kPeriod / 20, late);
        ASSERT_GE(took, kInterval * 95 / 100) << "phase " << phase << ", stop " << stop;
        ASSERT_LE(took, kInterval * 105 / 100) << "phase " << phase << ", stop " << stop;
      }
    }
  }
}

/// Late beats of this process delay the detection of a stopped peer only a little.
TEST(Liveness, AStopIsNoticedInTimeByAProcessThatRunsSeldom) {
  const Late four_periods = [](int) { return 4 * kPeriod; };
  const Clock::duration took = time_to_notice({}, kInterval, four_periods);
  EXPECT_GE(took, kInterval * 95 / 100);
  EXPECT_LE(took, kInterval * 13 / 10);
}

/// If this process runs only once in half an interval, less than half of the elapsed time counts as
/// a peer's silence.
TEST(Liveness, TimeWithoutCpuIsNotBlamedOnPeers) {
  const Late half_an_interval = [](int) { return kInterval / 2; };
  EXPECT_GE(time_to_notice({}, kInterval, half_an_interval), 2 * kInterval);
}

/// If this process was stopped for an hour, that hour does not count as a peer's silence.
TEST(Liveness, AStopOfThisProcessIsNotBlamedOnPeers) {
  Liveness liveness(2, kInterval);
  liveness.heard(WorldRank(1));
  EXPECT_TRUE(liveness.beat(kStart).empty());
  EXPECT_TRUE(liveness.beat(kStart + std::chrono::hours(1)).empty());
  liveness.heard(WorldRank(1));
  EXPECT_TRUE(liveness.beat(kStart + std::chrono::hours(2)).empty());
}

}  // namespace
}  // namespace mccl::engine
