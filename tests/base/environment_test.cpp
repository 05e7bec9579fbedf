#include "base/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace mccl {
namespace {

using testing::ElementsAre;

TEST(PrivateFolders, AreInMemoryFirst) {
  EXPECT_THAT(private_folders({}), ElementsAre("/dev/shm", "/tmp"));
  EXPECT_THAT(private_folders({{"XDG_RUNTIME_DIR", "/run/user/7"}, {"TMPDIR", "/scratch"}}),
              ElementsAre("/run/user/7", "/dev/shm", "/scratch"));
  EXPECT_THAT(private_folders({{"XDG_RUNTIME_DIR", "here"}, {"TMPDIR", ""}}),
              ElementsAre("/dev/shm", "/tmp"));
}

}  // namespace
}  // namespace mccl
