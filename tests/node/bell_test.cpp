#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

#include "node/arena.h"
#include "support/node_process.h"

namespace mccl::node {
namespace {

TEST(Bell, RingsOnlyIfTheReaderSleeps) {
  NodeProcess process;
  process.bell().ring();
  EXPECT_FALSE(process.sleep(0));
  process.fall_asleep();
  process.wake_up();
  process.bell().ring();
  EXPECT_FALSE(process.sleep(0));
  process.fall_asleep();
  process.bell().ring();
  process.bell().ring();
  EXPECT_TRUE(process.sleep(20'000));
}

TEST(Bell, ManyRingsWakeOnceAndNeverBlock) {
  NodeProcess process;
  process.fall_asleep();
  for (int i = 0; i < 1'000'000; ++i) process.bell().ring();  // blocks if rings fill the socket
  EXPECT_TRUE(process.sleep(20'000));
  EXPECT_EQ(process.arena().header().asleep.load(), 0u);
}

TEST(Bell, RingingADeadProcessRaisesNoSignal) {
  NodeProcess process;
  process.fall_asleep();
  process.stop_listening();
  process.bell().ring();
}

/// Lets two threads meet in every round.
class Meeting {
 public:
  void meet() {
    const std::uint32_t turn = turn_.load(std::memory_order_acquire);
    if (come_.fetch_add(1, std::memory_order_acq_rel) == 1) {
      come_.store(0, std::memory_order_relaxed);
      turn_.store(turn + 1, std::memory_order_release);
      return;
    }
    for (int looks = 0; turn_.load(std::memory_order_acquire) == turn; ++looks) {
      if (looks > 2000) std::this_thread::yield();
    }
  }

 private:
  std::atomic<int> come_{0};
  std::atomic<std::uint32_t> turn_{0};
};

/// One side stores and rings while the other announces sleep and looks. If the sleeper misses the
/// stored value, it must be rung.
TEST(Bell, NeitherSideMissesAWakeUp) {
  constexpr std::uint32_t kRounds = 100'000;
  NodeProcess process;
  Meeting meeting;
  alignas(kLine) std::atomic<std::uint32_t> stored{0};
  std::thread rings([&] {
    const Bell bell = process.bell();
    for (std::uint32_t round = 1; round <= kRounds; ++round) {
      meeting.meet();
      stored.store(round, std::memory_order_relaxed);
      bell.ring();
      meeting.meet();
    }
  });
  Sleeper sleeper(process.arena().header());
  std::uint32_t missed = 0;
  for (std::uint32_t round = 1; round <= kRounds; ++round) {
    meeting.meet();
    sleeper.fall_asleep();
    const bool seen = stored.load(std::memory_order_relaxed) == round;
    meeting.meet();
    const bool rung = process.arena().header().asleep.load(std::memory_order_relaxed) == 0;
    if (!seen && !rung) ++missed;
    sleeper.wake_up();
  }
  rings.join();
  EXPECT_EQ(missed, 0u) << "of " << kRounds;
}

}  // namespace
}  // namespace mccl::node
