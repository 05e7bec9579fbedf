#include "base/thread.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>

#include <string>

#include "mccl/error.h"

namespace mccl {
namespace {

/// Returns the signals that a thread started by start_thread has blocked.
sigset_t mask_of_a_new_thread() {
  sigset_t mask;
  start_thread("mccl test", [&] { pthread_sigmask(SIG_BLOCK, nullptr, &mask); }).join();
  return mask;
}

TEST(Thread, BlocksSignalsInItsThreads) {
  const sigset_t mask = mask_of_a_new_thread();
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGCHLD, SIGALRM})
    EXPECT_TRUE(sigismember(&mask, signal)) << signal;
}

TEST(Thread, LeavesSynchronousSignalsUnblocked) {
  const sigset_t mask = mask_of_a_new_thread();
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT})
    EXPECT_FALSE(sigismember(&mask, signal)) << signal;
}

TEST(Thread, LeavesTheSignalsOfItsStarterAsTheyWere) {
  sigset_t before, after;
  pthread_sigmask(SIG_BLOCK, nullptr, &before);
  mask_of_a_new_thread();
  pthread_sigmask(SIG_BLOCK, nullptr, &after);
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1})
    EXPECT_EQ(sigismember(&before, signal), sigismember(&after, signal)) << signal;
}

TEST(Thread, HasItsNameInDebuggers) {
  char name[16] = {};
  start_thread("mccl test", [&] { pthread_getname_np(pthread_self(), name, sizeof name); }).join();
  EXPECT_EQ(std::string(name), "mccl test");
}

#ifdef __GLIBC__
/// During its lifetime, new threads request more stack than the address space holds.
class NoRoomForThreads {
 public:
  NoRoomForThreads() {
    pthread_getattr_default_np(&before_);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, std::size_t{1} << 52);
    EXPECT_EQ(pthread_setattr_default_np(&attributes), 0);
    pthread_attr_destroy(&attributes);
  }
  ~NoRoomForThreads() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }

 private:
  pthread_attr_t before_;
};

TEST(Thread, NamesTheLimitsIfItCannotStart) {
  const NoRoomForThreads limited;
  try {
    start_thread("mccl test", [] {}).join();
    FAIL() << "it started";
  } catch (const Error& error) {
    const std::string message = error.what();
    for (const char* part : {"\"mccl test\"", "ulimit -u", "ulimit -v", "pids.max"})
      EXPECT_NE(message.find(part), std::string::npos) << message;
  }
}
#endif

}  // namespace
}  // namespace mccl
