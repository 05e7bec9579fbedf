#include "base/open_files.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

namespace mccl {
namespace {

using ::testing::HasSubstr;

TEST(OpenFiles, AreCounted) {
  const std::size_t before = open_files();
  const int another = ::open("/dev/null", O_RDONLY);
  EXPECT_EQ(open_files(), before + 1);
  ::close(another);
}

/// Runs in a child process, since the limit applies to the process.
TEST(OpenFiles, TheLimitIsRaisedOnceToTheHardOne) {
  const pid_t child = ::fork();
  if (child == 0) {
    rlimit limit = {50, 100};
    if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) ::_exit(2);
    raise_open_files_limit();
    if (open_files_limit() != 100) ::_exit(3);
    limit.rlim_cur = 60;
    ::setrlimit(RLIMIT_NOFILE, &limit);
    raise_open_files_limit();
    ::_exit(open_files_limit() == 60 ? 0 : 4);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << WEXITSTATUS(status);
}

TEST(OpenFiles, AnErrorOfTheLimitSaysWhatToDo) {
  EXPECT_THAT(open_files_advice(EMFILE), HasSubstr("ulimit -n"));
  EXPECT_THAT(open_files_advice(EMFILE), HasSubstr(std::to_string(open_files_limit())));
  EXPECT_EQ(open_files_advice(ECONNREFUSED), "");
  EXPECT_EQ(describe_errno(ECONNREFUSED), "Connection refused");
  EXPECT_THAT(describe_errno(EMFILE), HasSubstr("ulimit -n"));
}

}  // namespace
}  // namespace mccl
