// Tests the resources kept for the calls of a device, and the order within a bounce.
#include "device/depot.h"

#include <gtest/gtest.h>

#include "base/pinned_memory.h"
#include "support/device_double.h"

namespace mccl::device {
namespace {

using testing::DeviceDouble;

class DepotTest : public ::testing::Test {
 protected:
  const std::shared_ptr<DeviceDouble> device_ = std::make_shared<DeviceDouble>();
  const std::shared_ptr<Depot> depot_ = std::make_shared<Depot>(device_);
};

TEST_F(DepotTest, ReusesABlockForACallOfItsSize) {
  std::byte* first = nullptr;
  {
    const Block block = depot_->block(5000);
    first = block.data();
  }
  const Block larger = depot_->block(9000);
  EXPECT_NE(larger.data(), first);
  const Block again = depot_->block(8192);
  EXPECT_EQ(again.data(), first);
  const Block beside = depot_->block(8192);
  EXPECT_NE(beside.data(), first);
}

TEST_F(DepotTest, BlocksAreRoundedToAnEighthOfAPowerOfTwo) {
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  { const Block block = depot_->block(513 * kMiB); }
  EXPECT_EQ(depot_->unused_bytes(), 576 * kMiB);
  { const Block block = depot_->block(500 * kMiB); }
  EXPECT_EQ(depot_->unused_bytes(), 576 * kMiB) << "one that is a little longer serves";
}

TEST_F(DepotTest, ReleasesUnusedBlocksAboveALimitAndAfterATime) {
  constexpr std::size_t kHalf = 1 << 20;
  pinned_memory().set_limit(2 * kHalf);
  std::unique_ptr<HostBounce> bounce = depot_->bounce();
  {
    std::vector<Block> blocks;
    for (int i = 0; i < 3; ++i) blocks.push_back(depot_->block(kHalf));
  }
  EXPECT_EQ(depot_->unused_bytes(), 3 * kHalf) << "a call is under way";
  depot_->take_back(std::move(bounce));
  depot_->release_unused(std::chrono::hours(1));
  EXPECT_EQ(depot_->unused_bytes(), 2 * kHalf);
  { const Block block = depot_->block(kHalf); }
  EXPECT_EQ(depot_->unused_bytes(), 2 * kHalf);
  depot_->release_unused({});
  EXPECT_EQ(depot_->unused_bytes(), 0U);
  pinned_memory().set_limit(std::uint64_t{1} << 30);
}

TEST_F(DepotTest, ABounceThatCannotBeMadeKeepsNoBlockAllocated) {
  device_->refuses_queues = true;
  EXPECT_THROW(depot_->bounce(), Error);
  { const Block block = depot_->block(8192); }
  depot_->release_unused({});
  EXPECT_EQ(depot_->unused_bytes(), 0U);
}

TEST_F(DepotTest, PinnedMemoryIsCounted) {
  const std::uint64_t before = pinned_memory().bytes();
  {
    const auto depot = std::make_shared<Depot>(device_);
    { const Block block = depot->block(8192); }
    EXPECT_EQ(pinned_memory().bytes(), before + 8192) << "it is kept";
    const Block block = depot->block(8192);
    EXPECT_EQ(pinned_memory().bytes(), before + 8192) << "and used again";
    EXPECT_GE(pinned_memory().peak_bytes(), before + 8192);
  }
  EXPECT_EQ(pinned_memory().bytes(), before);
}

TEST_F(DepotTest, ABounceCopiesTheOutputOnlyAfterTheHostReleasesIt) {
  DeviceDouble::Queue stream(*device_);
  const auto memory = device_->allocate(4);
  const Block block = depot_->block(4);
  for (int round = 0; round < 3; ++round) {
    std::unique_ptr<HostBounce> bounce = depot_->bounce();
    stream.enqueue([memory, round] { *memory->inside() = static_cast<std::byte>(round); });
    bounce->begin(
        {&stream, memory->outside(), block.data(), 4, memory->outside(), block.data(), 4});
    while (bounce->arrived() < 4) std::this_thread::yield();
    EXPECT_EQ(*block.data(), static_cast<std::byte>(round));
    EXPECT_FALSE(bounce->ended());
    *block.data() = static_cast<std::byte>(100 + round);
    bounce->lead(&stream);
    std::byte found{};
    stream.enqueue([memory, &found] { found = *memory->inside(); });
    bounce->finish(false);
    stream.finish();
    EXPECT_TRUE(bounce->ended());
    EXPECT_EQ(found, static_cast<std::byte>(100 + round));
    depot_->take_back(std::move(bounce));
  }
}

TEST_F(DepotTest, ABounceCopiesPiecesInOrder) {
  constexpr std::size_t kPiece = 64;
  constexpr std::size_t kBytes = 4 * kPiece + 10;
  DeviceDouble::Queue stream(*device_);
  const auto memory = device_->allocate(kBytes);
  const Block block = depot_->block(kBytes);
  std::unique_ptr<HostBounce> bounce = depot_->bounce();
  for (int round = 1; round < 4; ++round) {
    stream.enqueue([memory, round] { std::memset(memory->inside(), round, kBytes); });
    device_->copies_to_host = 2;
    bounce->begin({&stream, memory->outside(), block.data(), kBytes, memory->outside(),
                   block.data(), kBytes, kPiece});
    while (bounce->arrived() < 2 * kPiece) std::this_thread::yield();
    EXPECT_EQ(bounce->arrived(), 2 * kPiece);
    EXPECT_EQ(block.data()[2 * kPiece - 1], static_cast<std::byte>(round));
    device_->copies_to_host = DeviceDouble::kAnyNumber;
    while (bounce->arrived() < kBytes) std::this_thread::yield();
    std::memset(block.data(), 100, kBytes);
    const int before = device_->copies_to_device;
    bounce->release(3 * kPiece);
    while (device_->copies_to_device < before + 3) std::this_thread::yield();
    EXPECT_EQ(memory->inside()[3 * kPiece - 1], std::byte{100});
    EXPECT_EQ(memory->inside()[3 * kPiece], static_cast<std::byte>(round));
    bounce->finish(false);
    while (!bounce->ended()) std::this_thread::yield();
    EXPECT_EQ(memory->inside()[kBytes - 1], std::byte{100});
  }
  depot_->take_back(std::move(bounce));
}

TEST_F(DepotTest, BouncesDoNotShareWords) {
  DeviceDouble::Queue stream(*device_);
  const auto memory = device_->allocate(4);
  const Block block = depot_->block(4);
  std::vector<std::unique_ptr<HostBounce>> bounces;
  for (int i = 0; i < 200; ++i) {
    bounces.push_back(depot_->bounce());
    bounces.back()->begin({&stream, nullptr, nullptr, 0, memory->outside(), block.data(), 4});
  }
  for (std::size_t i = 0; i < bounces.size(); ++i) {
    EXPECT_FALSE(bounces[i]->ended());
    bounces[i]->finish(false);
    while (!bounces[i]->ended()) std::this_thread::yield();
    EXPECT_TRUE(i + 1 == bounces.size() || !bounces[i + 1]->ended());
  }
}

}  // namespace
}  // namespace mccl::device
