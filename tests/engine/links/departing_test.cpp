#include "engine/links/departing.h"

#include <gtest/gtest.h>

#include <string>

namespace mccl::engine {
namespace {

/// The state of a link whose peer accepts bytes only when the test says so.
struct State {
  std::size_t unsent = 0;
  bool destroyed = false;
};

class SlowLink final : public transport::Link {
 public:
  explicit SlowLink(State& state) : state_(state) {}
  ~SlowLink() override { state_.destroyed = true; }

  std::size_t write(std::span<const std::byte>, std::span<const std::byte>) override { return 0; }
  std::span<const std::byte> peek(std::size_t) override { return {}; }
  void consume(std::size_t) override {}
  std::size_t peek_capacity() const override { return 4096; }
  std::size_t read(std::span<std::byte>) override { return 0; }
  int descriptor() const override { return -1; }
  std::size_t unsent() const override { return state_.unsent; }
  void lose_peer(transport::Loss) override {}
  std::string description() const override { return "a slow link"; }

 private:
  State& state_;
};

constexpr std::chrono::seconds kPatience{5};

class DepartingTest : public ::testing::Test {
 protected:
  void add(State& state) {
    DepartingLinks links;
    links.push_back({WorldRank(3), std::make_unique<SlowLink>(state)});
    departing_.add(std::move(links), start_);
  }

  const Log log_{2, LogLevel::warn};
  const Clock::time_point start_ = Clock::now();
  Departing departing_{kPatience, log_};
};

TEST_F(DepartingTest, ClosesAFlushedLinkImmediately) {
  State state;
  add(state);
  EXPECT_TRUE(state.destroyed);
  EXPECT_TRUE(departing_.empty());
}

TEST_F(DepartingTest, KeepsALinkWhileItsPeerReads) {
  State state{.unsent = 1000};
  add(state);
  Clock::time_point now = start_;
  for (; state.unsent > 100; state.unsent -= 100) {
    departing_.sweep(now += kPatience - std::chrono::seconds(1));
    ASSERT_FALSE(state.destroyed);
  }
  state.unsent = 0;
  departing_.sweep(now);
  EXPECT_TRUE(state.destroyed);
}

TEST_F(DepartingTest, GivesUpALinkWhosePeerReadsTooSlowly) {
  State state{.unsent = 1000};
  add(state);
  ::testing::internal::CaptureStderr();
  for (int second = 1; second < 10 * kPatience.count(); ++second, --state.unsent) {
    departing_.sweep(start_ + std::chrono::seconds(second));
    ASSERT_FALSE(state.destroyed) << second;
  }
  departing_.sweep(start_ + 10 * kPatience);
  EXPECT_TRUE(state.destroyed);
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("may be lost"), std::string::npos);
}

TEST_F(DepartingTest, GivesUpALinkAtTheEndOfTheJob) {
  State state{.unsent = 1000};
  add(state);
  departing_.end_by(start_ + kPatience);
  for (int second = 1; second < kPatience.count(); ++second, --state.unsent) {
    departing_.sweep(start_ + std::chrono::seconds(second));
    ASSERT_FALSE(state.destroyed) << second;
  }
  ::testing::internal::CaptureStderr();
  departing_.sweep(start_ + kPatience);
  EXPECT_TRUE(state.destroyed);
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("rank 3 has not received everything "
                                                          "within MCCL_CONNECT_TIMEOUT: "),
            std::string::npos);
}

TEST_F(DepartingTest, GivesUpAllLinksForAReason) {
  State first{.unsent = 1000};
  State second{.unsent = 234};
  add(first);
  add(second);
  EXPECT_EQ(departing_.text(), "rank 3 (1234 bytes)");
  ::testing::internal::CaptureStderr();
  departing_.give_up("is too slow");
  EXPECT_TRUE(first.destroyed && second.destroyed);
  EXPECT_TRUE(departing_.empty());
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("rank 3 is too slow: up to 234 bytes"),
            std::string::npos);
}

TEST_F(DepartingTest, WarnsOfBytesThatMayBeLost) {
  State state{.unsent = 1234};
  add(state);
  departing_.sweep(start_ + kPatience - std::chrono::milliseconds(1));
  ASSERT_FALSE(state.destroyed);
  ::testing::internal::CaptureStderr();
  departing_.sweep(start_ + kPatience);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(state.destroyed);
  for (const char* word : {"rank 2", "rank 3", "1234 bytes", "MCCL_CONNECT_TIMEOUT"}) {
    EXPECT_NE(said.find(word), std::string::npos) << word << " in " << said;
  }
}

TEST_F(DepartingTest, OnlyLinksToAPeerThatFellSilentAreGivenUp) {
  State state{.unsent = 1234};
  add(state);
  departing_.lose(WorldRank(3), transport::Loss::reported);
  departing_.lose(WorldRank(4), transport::Loss::silence);
  ASSERT_FALSE(state.destroyed);
  ::testing::internal::CaptureStderr();
  departing_.lose(WorldRank(3), transport::Loss::silence);
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("1234 bytes"), std::string::npos);
  EXPECT_TRUE(state.destroyed);
}

}  // namespace
}  // namespace mccl::engine
