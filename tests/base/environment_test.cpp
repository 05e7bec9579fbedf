#include "base/environment.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string_view>

namespace mccl {
namespace {

TEST(EnvironmentFingerprint, ChangesWithItsVariables) {
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
