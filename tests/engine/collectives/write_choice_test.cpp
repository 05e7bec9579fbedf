#include "engine/collectives/write_choice.h"

#include <gtest/gtest.h>

#include <chrono>

namespace mccl::engine {
namespace {

using Way = WriteChoice::Way;
using namespace std::chrono_literals;

constexpr std::size_t kBytes = 65536;
constexpr std::size_t kFreshBytes = 20 * kBytes;

/// Simulates writes through the cache and past it, which have fixed rates, on a simulated clock.
struct World {
  WriteChoice choice{kFreshBytes};
  Clock::time_point now{1h};
  double through_gbs = 40;
  double past_gbs = 28;
  int past = 0;

  Way write() {
    const Way way = choice.next(now);
    const double gbs = way == Way::past_cache ? past_gbs : through_gbs;
    choice.took(way, kBytes, kBytes / gbs / 1e9, now);
    past += way == Way::past_cache;
    return way;
  }
  /// Writes kFreshBytes, because no trial starts before that.
  World() {
    for (std::size_t done = 0; done < kFreshBytes; done += kBytes) {
      EXPECT_EQ(write(), Way::through_cache);
    }
  }
  void finish_trial() {
    now += WriteChoice::kBetweenTrials;
    for (int i = 0; i < WriteChoice::kTrialWrites; ++i) write();
  }
};

TEST(WriteChoice, TriesBothMethodsAndKeepsOne) {
  World world;
  for (int i = 0; i < WriteChoice::kTrialWrites; ++i) world.write();
  EXPECT_EQ(world.past, WriteChoice::kTrialWrites / 2);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(world.write(), Way::through_cache);
}

TEST(WriteChoice, BypassesTheCacheOnlyIfReadersStillGain) {
  World world;
  world.finish_trial();
  EXPECT_EQ(world.write(), Way::through_cache);
  world.through_gbs = 2;
  world.finish_trial();
  EXPECT_EQ(world.write(), Way::past_cache);
  world.through_gbs = world.past_gbs / WriteChoice::kWorthwhile * 1.1;
  world.finish_trial();
  EXPECT_EQ(world.write(), Way::through_cache);
}

TEST(WriteChoice, NoticesMovedThreads) {
  World world;
  world.through_gbs = 2;
  world.finish_trial();
  EXPECT_EQ(world.write(), Way::past_cache);
  world.through_gbs = 40;
  EXPECT_EQ(world.write(), Way::past_cache);
  world.finish_trial();
  EXPECT_EQ(world.write(), Way::through_cache);
}

TEST(WriteChoice, TriesAgainWhenWritesBecomeSlow) {
  World world;
  world.finish_trial();
  world.now += WriteChoice::kLeastBetweenTrials;
  world.through_gbs = 2;
  for (int i = 0; i < WriteChoice::kSlowWrites + WriteChoice::kTrialWrites; ++i) world.write();
  EXPECT_EQ(world.write(), Way::past_cache);
}

TEST(WriteChoice, IgnoresOccasionalSlowWrites) {
  World world;
  world.finish_trial();
  world.now += WriteChoice::kLeastBetweenTrials;
  world.past = 0;
  for (int i = 0; i < 100; ++i) {
    world.through_gbs = i % WriteChoice::kSlowWrites == 0 ? 40 : 2;
    world.write();
  }
  EXPECT_EQ(world.past, 0);
}

TEST(WriteChoice, IgnoresAnInterruptedWrite) {
  World world;
  world.now += WriteChoice::kBetweenTrials;
  world.through_gbs = 0.01;
  for (int i = 0; i < 4; ++i) world.write();
  world.through_gbs = 40;
  for (int i = 4; i < WriteChoice::kTrialWrites; ++i) world.write();
  EXPECT_EQ(world.write(), Way::through_cache);
}

TEST(WriteChoice, PlacesThatAreFastToWriteDoNotOutweighSlowOnes) {
  for (const int period : {2, 4, 8}) {
    for (int fast = 0; fast < period; ++fast) {
      World world;
      world.now += WriteChoice::kBetweenTrials;
      for (int i = 0; i < WriteChoice::kTrialWrites; ++i) {
        world.through_gbs = i % period == fast ? 40 : 2;
        world.write();
      }
      EXPECT_EQ(world.write(), Way::past_cache) << "every " << period << ", from " << fast;
    }
  }
}

}  // namespace
}  // namespace mccl::engine
