#include "base/descriptor.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <string>

#include "base/log.h"
#include "base/wake_pipe.h"

namespace mccl {
namespace {

/// Closes a descriptor of the process during its lifetime.
class Closed {
 public:
  explicit Closed(int descriptor)
      : descriptor_(descriptor), kept_(::fcntl(descriptor, F_DUPFD_CLOEXEC, 3)) {
    ::close(descriptor);
  }
  ~Closed() {
    ::dup2(kept_, descriptor_);
    ::close(kept_);
  }
  Closed(const Closed&) = delete;
  Closed& operator=(const Closed&) = delete;

  bool still() const { return ::fcntl(descriptor_, F_GETFD) < 0; }

 private:
  int descriptor_;
  int kept_;
};

/// A pipe whose descriptors have any free numbers.
struct Pipe {
  Pipe() { EXPECT_EQ(::pipe(ends), 0); }
  ~Pipe() {
    for (const int end : ends) ::close(end);
  }
  int ends[2];
};

TEST(OwnDescriptor, IsAboveTheStandardStreams) {
  const Closed input(STDIN_FILENO);
  Pipe pipe;
  ASSERT_EQ(pipe.ends[0], STDIN_FILENO);
  const int writer = pipe.ends[1];
  for (int& end : pipe.ends) end = own_descriptor(end);
  EXPECT_GT(pipe.ends[0], STDERR_FILENO);
  EXPECT_NE(::fcntl(pipe.ends[0], F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_EQ(pipe.ends[1], writer);
  EXPECT_TRUE(input.still());
  char byte = 1;
  EXPECT_EQ(::write(pipe.ends[1], &byte, 1), 1);
  EXPECT_EQ(::read(pipe.ends[0], &byte, 1), 1);
}

TEST(OwnDescriptor, LeavesNothingOpenIfItFails) {
  const Closed input(STDIN_FILENO);
  const int low = ::open("/dev/null", O_RDONLY);
  ASSERT_EQ(low, STDIN_FILENO);
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none = {STDERR_FILENO + 1, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const int own = own_descriptor(low);
  const int cause = errno;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(own, -1);
  EXPECT_EQ(cause, EMFILE);
  EXPECT_TRUE(input.still());
}

TEST(OwnDescriptor, AppliesToWakePipes) {
  const Closed input(STDIN_FILENO);
  WakePipe pipe;
  EXPECT_GT(pipe.descriptor(), STDERR_FILENO);
  EXPECT_GT(pipe.writing_end(), STDERR_FILENO);
  EXPECT_TRUE(input.still());
}

TEST(OwnDescriptor, ALogCreatedWithStandardErrorClosedNeverWritesToAReusedDescriptor) {
  Pipe pipe;
  const Closed error(STDERR_FILENO);
  const Log log(0, LogLevel::trace);
  EXPECT_FALSE(log.enabled(LogLevel::error));
  ASSERT_EQ(::dup2(pipe.ends[1], STDERR_FILENO), STDERR_FILENO);
  log.error("for no one");
  ::close(STDERR_FILENO);
  ::fcntl(pipe.ends[0], F_SETFL, O_NONBLOCK);
  char byte = 0;
  EXPECT_EQ(::read(pipe.ends[0], &byte, 1), -1);
  EXPECT_EQ(errno, EAGAIN);
}

TEST(WaitFor, EndsAtAnEventOrAtTheDeadline) {
  const Pipe pipe;
  const Clock::time_point now = Clock::now();
  EXPECT_FALSE(wait_for(pipe.ends[0], POLLIN, now));
  EXPECT_FALSE(wait_for(pipe.ends[0], POLLIN, now + std::chrono::milliseconds(5)));
  EXPECT_GE(Clock::now(), now + std::chrono::milliseconds(5));
  EXPECT_TRUE(wait_for(pipe.ends[1], POLLOUT, Clock::time_point::max()));
  EXPECT_EQ(::write(pipe.ends[1], "x", 1), 1);
  EXPECT_TRUE(wait_for(pipe.ends[0], POLLIN, Clock::time_point::min()));
}

TEST(WriteAll, ReportsARefusal) {
  Pipe pipe;
  const Descriptor writer(::dup(pipe.ends[1]));
  EXPECT_TRUE(write_all(writer, "all"));
  char text[4] = {};
  EXPECT_EQ(::read(pipe.ends[0], text, 3), 3);
  EXPECT_STREQ(text, "all");
  const Descriptor reader(::dup(pipe.ends[0]));
  EXPECT_FALSE(write_all(reader, "all"));
  EXPECT_EQ(errno, EBADF);
}

}  // namespace
}  // namespace mccl
