// Tests memory that peers may access: lookup of addresses, and which memory stays allocated.
#include "device/pool.h"

#include <gtest/gtest.h>

#include "mccl/error.h"
#include "support/device_double.h"

namespace mccl::device {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

std::byte* past(void* memory, std::size_t bytes) { return static_cast<std::byte*>(memory) + bytes; }

class PoolTest : public ::testing::Test {
 protected:
  const std::shared_ptr<testing::DeviceDouble> device_ = std::make_shared<testing::DeviceDouble>();
  Pool pool_{device_};
};

TEST_F(PoolTest, MemoryIsFoundInItsWindow) {
  void* const first = pool_.take(100);
  void* const second = pool_.take(5 * kMiB);
  const auto there = pool_.find(past(second, 1000), 5 * kMiB - 1000);
  ASSERT_TRUE(there);
  EXPECT_EQ(there->window, 1U);
  EXPECT_EQ(there->offset, 1000U);
  EXPECT_EQ(pool_.find(first, 100)->window, 0U);
  EXPECT_FALSE(pool_.find(past(second, 1000), 6 * kMiB)) << "it ends before";
  EXPECT_FALSE(pool_.find(past(second, 100 * kMiB), 1));
  int elsewhere = 0;
  EXPECT_FALSE(pool_.find(&elsewhere, sizeof(elsewhere)));
}

TEST_F(PoolTest, FreesUnannouncedWindows) {
  void* const memory = pool_.take(kMiB);
  EXPECT_EQ(device_->objection({memory, 1, DType::u8}), "");
  pool_.give_back(memory);
  EXPECT_NE(device_->objection({memory, 1, DType::u8}), "");
  EXPECT_FALSE(pool_.find(memory, 1));
}

TEST_F(PoolTest, ReusesTheNumberOfAnUnannouncedWindow) {
  void* const stays = pool_.take(kMiB);
  void* const goes = pool_.take(kMiB);
  void* const last = pool_.take(kMiB);
  pool_.give_back(goes);
  for (int cycle = 0; cycle < 2000; ++cycle) {
    void* const memory = pool_.take(kMiB);
    EXPECT_EQ(pool_.find(memory, 1)->window, 1U);
    pool_.give_back(memory);
  }
  EXPECT_EQ(pool_.pin_from(0).size(), 3U);
  EXPECT_EQ(pool_.find(pool_.take(kMiB), 1)->window, 3U) << "others know that 1 is gone";
  EXPECT_EQ(pool_.find(stays, 1)->window, 0U);
  EXPECT_EQ(pool_.find(last, 1)->window, 2U);
}

TEST_F(PoolTest, RegisteringEachTimeUsesUpNoNumbers) {
  for (int cycle = 0; cycle < 2000; ++cycle) {
    pool_.give_back(pool_.take(kMiB));
    EXPECT_EQ(pool_.pin_from(0).size(), 0U);
  }
}

TEST_F(PoolTest, ReturnsAnnouncedMemoryAfterTheDeviceHasFinished) {
  void* const memory = pool_.take(kMiB);
  pool_.pin_from(0);
  EXPECT_EQ(device_->times_finished, 0);
  pool_.give_back(memory);
  EXPECT_EQ(device_->times_finished, 1);
}

TEST_F(PoolTest, KeepsAndReusesAnnouncedWindows) {
  void* const memory = pool_.take(6 * kMiB);
  EXPECT_EQ(pool_.pin_from(0).size(), 1U);
  pool_.give_back(memory);
  EXPECT_EQ(device_->objection({memory, 1, DType::u8}), "") << "a peer may still look at it";
  EXPECT_NE(pool_.take(kMiB), memory) << "too little for so large a window";
  EXPECT_EQ(pool_.take(4 * kMiB), memory);
  EXPECT_NE(pool_.take(4 * kMiB), memory) << "it is in use";
  EXPECT_EQ(pool_.pin_from(1).size(), 2U) << "only what is new is told";
}

TEST_F(PoolTest, RefusesMemoryOfAnotherOrigin) {
  void* const memory = pool_.take(kMiB);
  EXPECT_THROW(pool_.give_back(past(memory, 8)), InvalidArgument);
  pool_.pin_from(0);
  pool_.give_back(memory);
  EXPECT_THROW(pool_.give_back(memory), InvalidArgument) << "twice";
}

}  // namespace
}  // namespace mccl::device
