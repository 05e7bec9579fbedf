// Tests what a process closes when SIGTERM ends it. Each test runs in a child process, which a
// signal ends.
#include "engine/termination.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <thread>

#include "support/no_more_files.h"

namespace mccl {
namespace {

struct Outcome {
  int signal = 0;
  int status = 0;
  std::string said;
};

/// Runs `body` in a child process and returns how it ended; `say` writes to this process.
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

TEST(Termination, ClosesOpenObjectsAndDiesOfTheSignal) {
  const Outcome outcome = outcome_of([](const auto& say) {
    const auto first = at_termination([&] { say('a'); });
    const auto second = at_termination([&] { say('b'); });
    terminate_this_process();
  });
  EXPECT_EQ(outcome.signal, SIGTERM);
  EXPECT_EQ(outcome.said, "ab");
}

TEST(Termination, DoesNotCloseDestroyedObjects) {
  const Outcome outcome = outcome_of([](const auto& say) {
    at_termination([&] { say('a'); }).reset();
    const auto stays = at_termination([&] { say('b'); });
    terminate_this_process();
  });
  EXPECT_EQ(outcome.signal, SIGTERM);
  EXPECT_EQ(outcome.said, "b");
}

TEST(Termination, AProgramThatHandlesTheSignalIsLeftAlone) {
  const Outcome outcome = outcome_of([](const auto& say) {
    ::signal(SIGTERM, [](int) { ::_exit(7); });
    const auto open = at_termination([&] { say('a'); });
    terminate_this_process();
  });
  EXPECT_EQ(outcome.status, 7);
  EXPECT_EQ(outcome.said, "");
}

TEST(Termination, IsOmittedIfNoPipeCanBeMade) {
  const Outcome outcome = outcome_of([](const auto& say) {
    const testing::NoMoreFiles full;
    say(at_termination([&] { say('a'); }) ? 'x' : '0');
  });
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.said, "0");
}

TEST(Termination, AnExitMeanwhileWaitsForTheClosing) {
  const Outcome outcome = outcome_of([](const auto& say) {
    const auto open = at_termination([&] {
      say('a');
      ::usleep(200'000);  // simulates a peer that is slow to answer
      say('b');
    });
    ::kill(::getpid(), SIGTERM);
    std::exit(1);
  });
  EXPECT_EQ(outcome.signal, SIGTERM);
  EXPECT_EQ(outcome.said, "ab");
}

TEST(Termination, GivesUpOnAClosingThatNeverEnds) {
  const Outcome outcome = outcome_of([](const auto& say) {
    const auto open = at_termination([&] {
      say('a');
      for (;;) ::pause();
    });
    terminate_this_process();
  });
  EXPECT_EQ(outcome.signal, SIGTERM);
  EXPECT_EQ(outcome.said, "a");
}

/// ThreadSanitizer defers signals indefinitely in a process that was forked while other threads
/// ran.
bool signals_reach_children() {
#ifdef __SANITIZE_THREAD__
  return false;
#else
  return true;
#endif
}

/// Waits until the signal thread has started; call it before a fork. A starting thread allocates,
/// and the child could inherit a held lock of a sanitizer's allocator.
void wait_until_it_listens() {
#ifdef __linux__
  for (;;) {
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
      std::string name;
      std::getline(std::ifstream(task.path() / "comm") >> std::ws, name);
      if (name == "mccl term") return;
    }
  }
#endif
}

/// The child inherits the handler, but has nothing to close.
TEST(Termination, TheChildOfAForkDiesAlone) {
  if (!signals_reach_children()) GTEST_SKIP() << "not under the thread sanitizer";
  const Outcome outcome = outcome_of([](const auto& say) {
    const auto open = at_termination([&] { say('a'); });
    wait_until_it_listens();
    const pid_t child = ::fork();
    if (child == 0) terminate_this_process();
    int status = 0;
    ::waitpid(child, &status, 0);
    say(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM ? 'k' : 'x');
  });
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.said, "k");
}

TEST(Termination, TheChildOfAForkMayRegisterItsOwn) {
  if (!signals_reach_children()) GTEST_SKIP() << "not under the thread sanitizer";
  const Outcome outcome = outcome_of([](const auto& say) {
    const auto open = at_termination([&] { say('a'); });
    wait_until_it_listens();
    const pid_t child = ::fork();
    if (child == 0) {
      const auto own = at_termination([&] { say('c'); });
      terminate_this_process();
    }
    ::waitpid(child, nullptr, 0);
  });
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.said, "c");
}

#ifdef __linux__
/// Returns true once the process has `expected` threads. The system may list a joined thread for a
/// moment.
bool comes_to_threads(std::ptrdiff_t expected) {
  for (int look = 0; look < 10'000; ++look) {
    using Tasks = std::filesystem::directory_iterator;
    if (std::distance(Tasks("/proc/self/task"), Tasks()) == expected) return true;
  }
  return false;
}

/// Once nothing is left to close, a program may again fork, or handle SIGTERM itself.
TEST(Termination, RestoresTheStateAfterTheLastObject) {
  const Outcome outcome = outcome_of([](const auto& say) {
    std::thread([] {}).join();  // starts a sanitizer's own thread
    using Tasks = std::filesystem::directory_iterator;
    const auto before = std::distance(Tasks("/proc/self/task"), Tasks());
    for (int round = 0; round < 3; ++round) {
      const auto open = at_termination([&] { say('a'); });
      const auto more = at_termination([&] { say('b'); });
      say(open && more && comes_to_threads(before + 1) ? '1' : 'x');
    }
    struct sigaction now = {};
    ::sigaction(SIGTERM, nullptr, &now);
    say(now.sa_handler == SIG_DFL && comes_to_threads(before) ? '0' : 'x');
  });
  EXPECT_EQ(outcome.said, "1110");
}
#endif

}  // namespace
}  // namespace mccl
