#include "base/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string_view>

namespace mccl {
namespace {

using ::testing::ElementsAre;

TEST(PrivateFolders, AreInMemoryFirst) {
  EXPECT_THAT(private_folders({}), ElementsAre("/dev/shm", "/tmp"));
  EXPECT_THAT(private_folders({{"XDG_RUNTIME_DIR", "/run/user/7"}, {"TMPDIR", "/scratch"}}),
              ElementsAre("/run/user/7", "/dev/shm", "/scratch"));
  EXPECT_THAT(private_folders({{"XDG_RUNTIME_DIR", "here"}, {"TMPDIR", ""}}),
              ElementsAre("/dev/shm", "/tmp"));
}

TEST(EnvironmentFingerprint, ChangesWithTheVariablesItIsOf) {
  constexpr std::string_view kPrefixes[] = {"FINGER_"};
  ::unsetenv("FINGER_A");
  const auto none = environment_fingerprint(kPrefixes);
  ::setenv("FINGER_A", "1", 1);
  const auto one = environment_fingerprint(kPrefixes);
  ::setenv("FINGER_A", "2", 1);
  const auto two = environment_fingerprint(kPrefixes);
  ::setenv("PALM_A", "2", 1);
  EXPECT_EQ(environment_fingerprint(kPrefixes), two);
  ::unsetenv("FINGER_A");
  EXPECT_EQ(environment_fingerprint(kPrefixes), none);
  EXPECT_NE(none, one);
  EXPECT_NE(one, two);
}

}  // namespace
}  // namespace mccl
