// Each test in a process of its own, which dies.
#include "base/termination.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <string>

namespace mccl {
namespace {

struct Outcome {
  int signal = 0;
  int status = 0;
  std::string said;
};

/// What becomes of a process that does this; `say` writes to this one.
Outcome outcome_of(const std::function<void(const std::function<void(char)>& say)>& body) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGTERM, SIG_DFL);
    ::close(ends[0]);
    body([&ends](char letter) {
      if (::write(ends[1], &letter, 1) != 1) ::_exit(3);
    });
    ::_exit(0);
  }
  ::close(ends[1]);
  Outcome outcome;
  for (char letter = 0; ::read(ends[0], &letter, 1) == 1;) outcome.said += letter;
  ::close(ends[0]);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  if (WIFSIGNALED(status)) outcome.signal = WTERMSIG(status);
  if (WIFEXITED(status)) outcome.status = WEXITSTATUS(status);
  return outcome;
}

[[noreturn]] void terminate_this_process() {
  ::kill(::getpid(), SIGTERM);
  for (;;) ::pause();
}

TEST(Termination, WhatIsOpenIsClosedAndTheProcessDiesOfTheSignal) {
  const Outcome outcome = outcome_of([](const auto& say) {
    const auto first = std::make_shared<int>(), second = std::make_shared<int>();
    at_termination(first, [&] { say('a'); });
    at_termination(second, [&] { say('b'); });
    terminate_this_process();
  });
  EXPECT_EQ(outcome.signal, SIGTERM);
  EXPECT_EQ(outcome.said, "ab");
}

TEST(Termination, WhatHasGoneIsNotClosed) {
  const Outcome outcome = outcome_of([](const auto& say) {
    at_termination(std::make_shared<int>(), [&] { say('a'); });
    const auto stays = std::make_shared<int>();
    at_termination(stays, [&] { say('b'); });
    terminate_this_process();
  });
  EXPECT_EQ(outcome.signal, SIGTERM);
  EXPECT_EQ(outcome.said, "b");
}

TEST(Termination, AProgramThatHandlesTheSignalIsLeftAlone) {
  const Outcome outcome = outcome_of([](const auto& say) {
    ::signal(SIGTERM, [](int) { ::_exit(7); });
    const auto owner = std::make_shared<int>();
    at_termination(owner, [&] { say('a'); });
    terminate_this_process();
  });
  EXPECT_EQ(outcome.status, 7);
  EXPECT_EQ(outcome.said, "");
}

TEST(Termination, AnExitMeanwhileWaitsForTheClosing) {
  const Outcome outcome = outcome_of([](const auto& say) {
    const auto owner = std::make_shared<int>();
    at_termination(owner, [&] {
      say('a');
      ::usleep(200'000);  // as a peer that is slow to answer
      say('b');
    });
    ::kill(::getpid(), SIGTERM);
    std::exit(1);
  });
  EXPECT_EQ(outcome.signal, SIGTERM);
  EXPECT_EQ(outcome.said, "ab");
}

TEST(Termination, WhatNeverEndsIsGivenUp) {
  const Outcome outcome = outcome_of([](const auto& say) {
    const auto owner = std::make_shared<int>();
    at_termination(owner, [&] {
      say('a');
      for (;;) ::pause();
    });
    terminate_this_process();
  });
  EXPECT_EQ(outcome.signal, SIGTERM);
  EXPECT_EQ(outcome.said, "a");
}

/// It has its parent's handler, and nothing to close.
TEST(Termination, TheChildOfAForkDiesAlone) {
  const Outcome outcome = outcome_of([](const auto& say) {
    const auto owner = std::make_shared<int>();
    at_termination(owner, [&] { say('a'); });
    const pid_t child = ::fork();
    if (child == 0) terminate_this_process();
    int status = 0;
    ::waitpid(child, &status, 0);
    say(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM ? 'k' : 'x');
  });
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.said, "k");
}

TEST(Termination, TheChildOfAForkMayHaveSomethingOfItsOwn) {
  const Outcome outcome = outcome_of([](const auto& say) {
    const auto owner = std::make_shared<int>();
    at_termination(owner, [&] { say('a'); });
    const pid_t child = ::fork();
    if (child == 0) {
      at_termination(owner, [&] { say('c'); });
      terminate_this_process();
    }
    ::waitpid(child, nullptr, 0);
  });
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.said, "c");
}

}  // namespace
}  // namespace mccl
