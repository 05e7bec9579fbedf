#include "base/secret.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#ifdef __linux__
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#endif

#include <fstream>
#include <sstream>
#include <string>

#include "base/environment.h"
#include "mccl/config.h"

namespace mccl {
namespace {

TEST(SecretBytes, IsAValue) {
  const std::string text("a\0b", 3);
  SecretBytes secret(text);
  const SecretBytes copy = secret;
  EXPECT_EQ(copy, text);
  EXPECT_EQ(copy.size(), 3U);
  secret = "another";
  EXPECT_EQ(secret, "another");
  EXPECT_EQ(copy, text) << "an assignment must not change copies";
  EXPECT_FALSE(secret == copy);
  EXPECT_TRUE(SecretBytes().empty());
  EXPECT_EQ(SecretBytes(""), SecretBytes());
  const std::string large(100'000, 'k');
  EXPECT_EQ(SecretBytes(large), large);
}

TEST(SecretBytes, IsNotPrinted) {
  std::ostringstream stream;
  stream << SecretBytes("hush") << SecretBytes();
  EXPECT_EQ(stream.str(), "(set)(not set)");
}

TEST(SecretBytes, TheOriginalIsErased) {
  std::string text = "a secret that is longer than a small string";
  const std::string zeros(text.size(), '\0');
  EXPECT_EQ(take_secret(text), "a secret that is longer than a small string");
  EXPECT_EQ(text, zeros);
}

TEST(ProtectJobKey, CoversEverySecretSetting) {
  for (const SettingInfo& setting : settings())
    EXPECT_EQ(setting.secret, setting.variable == kKeyVariable) << setting.name;
}

#ifdef __GLIBC__

/// True if core dumps leave out the memory at `address`.
bool is_left_out(const void* address) {
  std::ifstream lines("/proc/self/smaps");
  const auto at = reinterpret_cast<unsigned long>(address);
  bool is_here = false;
  for (std::string line; std::getline(lines, line);) {
    unsigned long first = 0, last = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &first, &last) == 2)
      is_here = first <= at && at < last;
    if (is_here && line.starts_with("VmFlags:")) return line.find(" dd") != line.npos;
  }
  return false;
}

TEST(SecretBytes, CoreDumpsLeaveItOut) {
  const SecretBytes secret("hush");
  const std::string text = "not a secret, and not a small string";
  EXPECT_TRUE(is_left_out(secret.view().data()));
  EXPECT_FALSE(is_left_out(text.data()));
}

TEST(ProtectJobKey, MovesTheVariableAndErasesTheOriginal) {
  ::setenv(kKeyVariable, "the key of this job", 1);
  const char* const before = ::getenv(kKeyVariable);
  EXPECT_EQ(Config::from_environment().job_key, "the key of this job");
  const char* const after = ::getenv(kKeyVariable);
  EXPECT_EQ(before, std::string(std::string_view("the key of this job").size(), '*'));
  EXPECT_STREQ(after, "the key of this job");
  EXPECT_TRUE(is_left_out(after));
  EXPECT_EQ(Config::from_environment().job_key, "the key of this job");
  EXPECT_EQ(::getenv(kKeyVariable), after) << "the second call must change nothing";
  EXPECT_EQ(::system("test \"$MCCL_JOB_KEY\" = 'the key of this job'"), 0);
  ::setenv(kKeyVariable, "another key", 1);
  EXPECT_EQ(Config::from_environment().job_key, "another key");
  EXPECT_TRUE(is_left_out(::getenv(kKeyVariable)));
  ::unsetenv(kKeyVariable);
  EXPECT_TRUE(Config::from_environment().job_key.empty());
}

TEST(ForbidCoreDumps, OfThisProcessOnly) {
  const int dumpable = ::prctl(PR_GET_DUMPABLE, 0, 0, 0, 0);
  const pid_t child = ::fork();
  if (child == 0) {
    forbid_core_dumps();
    ::_exit(::prctl(PR_GET_DUMPABLE, 0, 0, 0, 0));
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(::prctl(PR_GET_DUMPABLE, 0, 0, 0, 0), dumpable);
}

TEST(ProtectJobKey, AllowsReadOnlyMemory) {
  static constexpr char kEntry[] = "MCCL_JOB_KEY=a literal of the program";
  ::putenv(const_cast<char*>(kEntry));
  protect_job_key();
  EXPECT_STREQ(::getenv(kKeyVariable), "a literal of the program");
  EXPECT_NE(::getenv(kKeyVariable), kEntry + std::string_view("MCCL_JOB_KEY=").size());
  ::unsetenv(kKeyVariable);
}

#endif

}  // namespace
}  // namespace mccl
