// Tests when a thread that leaves help() wakes the progress thread.
#include "engine/driving/driver.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <thread>

#include "mccl/error.h"

namespace mccl::engine {
namespace {

class AwaitedCall final : public detail::WorkState {
 public:
  std::string description() const override { return "a call"; }
  void end(std::exception_ptr error = nullptr) { static_cast<void>(finish(error)); }
  void caller_left() override { has_left = true; }

  bool has_left = false;

 protected:
  void help(Clock::time_point) override {}
};

/// Calls that progress only as a test says.
class FakeCalls final : public Driven {
 public:
  bool pass() override {
    if (on_pass) on_pass();
    return false;
  }
  bool has_calls() const override { return pending > 0; }
  bool has_unattended_calls() const override { return unattended > 0; }
  bool sleeps_too_long() const override { return false; }
  bool callbacks_wait() const override { return false; }
  bool run_callbacks(std::unique_lock<std::mutex>&) override { return true; }
  bool arm() override { return false; }
  void disarm() override {}
  void prepare(Sleep&) override {}
  void has_slept(bool, Clock::time_point) override {}

  std::function<void()> on_pass;
  int pending = 0;
  int unattended = 0;
};

class LeavingADriver : public ::testing::Test {
 protected:
  LeavingADriver() {
    driver_.drive_until_idle(sleep_);
    calls_.on_pass = [this] { call_->end(); };
  }

  /// Waits for `call_` as its caller does. Returns true if that woke the progress thread.
  bool wakes(Clock::time_point deadline = Clock::time_point::max()) {
    driver_.help(*call_, deadline);
    return ::poll(sleep_.watched.data(), 1, 0) == 1;
  }

  FakeCalls calls_;
  Driver driver_{calls_, std::chrono::microseconds{100}};
  Sleep sleep_;
  std::shared_ptr<AwaitedCall> call_ = std::make_shared<AwaitedCall>();
};

TEST_F(LeavingADriver, WakesNoThreadIfNoCallIsLeft) { EXPECT_FALSE(wakes()); }

TEST_F(LeavingADriver, WakesTheProgressThreadForACallThatNoCallerDrives) {
  calls_.pending = calls_.unattended = 1;
  EXPECT_TRUE(wakes());
}

TEST_F(LeavingADriver, WakesNoThreadForACallWhoseCallerWaitsNext) {
  calls_.pending = 1;
  EXPECT_FALSE(wakes());
}

/// The other caller cannot drive, because it found a driver when it began to wait.
TEST_F(LeavingADriver, WakesTheProgressThreadForACallerThatSleeps) {
  AwaitedCall other;
  std::thread sleeper;
  calls_.pending = 1;
  calls_.on_pass = [&] {
    sleeper = std::thread([&] { driver_.help(other, Clock::time_point::max()); });
    while (::poll(sleep_.watched.data(), 1, 0) != 1) std::this_thread::yield();
    call_->end();
  };
  driver_.help(*call_, Clock::time_point::max());
  calls_.on_pass = nullptr;
  driver_.drive_until_idle(sleep_);
  call_ = std::make_shared<AwaitedCall>();
  calls_.on_pass = [this] { call_->end(); };
  EXPECT_TRUE(wakes());
  other.end();
  sleeper.join();
}

/// A caller that has waited in vain may do other things before it waits again.
TEST_F(LeavingADriver, WakesTheProgressThreadAtTheDeadline) {
  calls_.on_pass = nullptr;
  calls_.pending = 1;
  EXPECT_TRUE(wakes(Clock::now() + std::chrono::milliseconds{1}));
  EXPECT_TRUE(call_->has_left);
}

TEST_F(LeavingADriver, WakesTheProgressThreadIfTheDeadlineHadPassedBefore) {
  calls_.pending = 1;
  EXPECT_TRUE(wakes(Clock::now()));
  EXPECT_TRUE(call_->has_left);
}

/// The exception may keep the caller from waiting for its other calls.
TEST_F(LeavingADriver, WakesTheProgressThreadAfterAFailure) {
  calls_.on_pass = [this] { call_->end(std::make_exception_ptr(TimeoutError("late"))); };
  calls_.pending = 1;
  EXPECT_TRUE(wakes());
}

}  // namespace
}  // namespace mccl::engine
