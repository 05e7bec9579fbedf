// Tests that SIGINT and SIGTERM are noticed, and still reach the handlers of the program.
#include "base/signal_watch.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <memory>

namespace mccl {
namespace {

volatile sig_atomic_t handled = 0;
void count(int) { handled = handled + 1; }
void count_with_info(int, siginfo_t* info, void*) {
  handled = handled + (info != nullptr && info->si_pid == ::getpid() ? 100 : 0);
}

class SignalWatchTest : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    handled = 0;
    ASSERT_EQ(::sigaction(GetParam(), nullptr, &before_), 0);
  }
  void TearDown() override { ::sigaction(GetParam(), &before_, nullptr); }

  static struct sigaction action() {
    struct sigaction found = {};
    EXPECT_EQ(::sigaction(GetParam(), nullptr, &found), 0);
    return found;
  }

 private:
  struct sigaction before_ = {};
};

TEST_P(SignalWatchTest, NoticesASignalAndCallsTheHandlerOfTheProgram) {
  ::signal(GetParam(), &count);
  {
    const SignalWatch signals;
    EXPECT_FALSE(signals.has_arrived());
    ::raise(GetParam());
    EXPECT_TRUE(signals.has_arrived());
    EXPECT_FALSE(SignalWatch().has_arrived()) << "only later signals count";
  }
  EXPECT_EQ(handled, 1);
  EXPECT_EQ(action().sa_handler, &count);
}

TEST_P(SignalWatchTest, PassesOnTheDetailsOfTheSignal) {
  struct sigaction detailed = {};
  detailed.sa_sigaction = &count_with_info;
  detailed.sa_flags = SA_SIGINFO | SA_RESTART;
  ::sigaction(GetParam(), &detailed, nullptr);
  {
    const SignalWatch signals;
    EXPECT_NE(action().sa_flags & SA_RESTART, 0);
    ::kill(::getpid(), GetParam());
    EXPECT_TRUE(signals.has_arrived());
  }
  EXPECT_EQ(handled, 100);
  EXPECT_EQ(action().sa_sigaction, &count_with_info);
}

TEST_P(SignalWatchTest, LeavesSignalsWithoutAHandlerAlone) {
  for (const auto effect : {SIG_DFL, SIG_IGN}) {
    ::signal(GetParam(), effect);
    const SignalWatch signals;
    EXPECT_EQ(action().sa_handler, effect);
  }
}

TEST_P(SignalWatchTest, OneObjectMayOutliveAnother) {
  ::signal(GetParam(), &count);
  auto first = std::make_unique<SignalWatch>();
  const SignalWatch second;
  first.reset();
  ::raise(GetParam());
  EXPECT_TRUE(second.has_arrived());
  EXPECT_EQ(handled, 1);
}

void (*chained)(int, siginfo_t*, void*) = nullptr;
void count_and_chain(int number, siginfo_t* info, void* context) {
  handled = handled + 1;
  chained(number, info, context);
}

/// The program looks up the present handler, and later installs one that calls it.
TEST_P(SignalWatchTest, AHandlerThatCallsTheWatchedOneEnds) {
  ::signal(GetParam(), &count);
  {
    const SignalWatch signals;
    chained = action().sa_sigaction;
    ::signal(GetParam(), &count);
  }
  EXPECT_EQ(action().sa_handler, &count) << "the handler that the program has installed remains";
  struct sigaction chaining = {};
  chaining.sa_sigaction = &count_and_chain;
  chaining.sa_flags = SA_SIGINFO;
  ::sigaction(GetParam(), &chaining, nullptr);
  const SignalWatch signals;
  ::raise(GetParam());
  EXPECT_TRUE(signals.has_arrived());
  EXPECT_GE(handled, 1);
}

INSTANTIATE_TEST_SUITE_P(Signals, SignalWatchTest, ::testing::Values(SIGINT, SIGTERM));

}  // namespace
}  // namespace mccl
