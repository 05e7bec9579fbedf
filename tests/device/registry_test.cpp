// Tests which devices a process sees before it loads any driver.
#include "device/registry.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

namespace mccl::device {
namespace {

class VisibleDevices : public ::testing::TestWithParam<const char*> {
 protected:
  void TearDown() override { ::unsetenv("CUDA_VISIBLE_DEVICES"); }
};

TEST_P(VisibleDevices, AnEmptyListHidesAll) {
  ::setenv("CUDA_VISIBLE_DEVICES", GetParam(), 1);
  EXPECT_FALSE(sees_any(DeviceKind::cuda));
}

INSTANTIATE_TEST_SUITE_P(Lists, VisibleDevices, ::testing::Values("", "-1", "-1,0"));

TEST(Devices, FindsAGpuByTheFileOfItsDriver) {
  const bool has_driver = ::access("/dev/nvidiactl", F_OK) == 0;
  ::unsetenv("CUDA_VISIBLE_DEVICES");
  EXPECT_EQ(sees_any(DeviceKind::cuda), has_driver);
  ::setenv("CUDA_VISIBLE_DEVICES", "0", 1);
  EXPECT_EQ(sees_any(DeviceKind::cuda), has_driver);
  ::unsetenv("CUDA_VISIBLE_DEVICES");
}

}  // namespace
}  // namespace mccl::device
