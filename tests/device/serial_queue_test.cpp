// Tests the order of calls that a device carries out itself.
#include "device/serial_queue.h"

#include <gtest/gtest.h>

#include <vector>

#include "support/device_double.h"

namespace mccl::device {
namespace {

using testing::DeviceDouble;

class SerialQueueTest : public ::testing::Test {
 protected:
  /// Makes a call that records its number when it runs.
  SerialQueue::Act noting(int number) {
    return [this, number](void* stream) {
      static_cast<DeviceDouble::Queue*>(stream)->enqueue(
          [this, number] { ran_.push_back(number); });
    };
  }

  const std::shared_ptr<DeviceDouble> device_ = std::make_shared<DeviceDouble>();
  const std::shared_ptr<Depot> depot_ = std::make_shared<Depot>(device_);
  std::vector<int> ran_;  // used only by the device's thread
};

TEST_F(SerialQueueTest, CallsOfSeveralStreamsRunInOrder) {
  DeviceDouble::Queue first(*device_);
  DeviceDouble::Queue second(*device_);
  SerialQueue queue(depot_);
  const auto open = std::make_shared<std::atomic<bool>>(false);
  first.hold(open);
  std::vector<int> expected;
  for (int number = 0; number < 60; number += 4) {
    queue.run_beside(&first, noting(number));
    queue.run_on(&second, false, noting(number + 1));
    queue.run_on(&first, false, noting(number + 2));
    queue.run_beside(&second, noting(number + 3));
    for (int i = 0; i < 4; ++i) expected.push_back(number + i);
  }
  open->store(true);
  DeviceDouble::Queue last(*device_);
  queue.lead(&last);
  last.finish();
  EXPECT_EQ(ran_, expected);
}

TEST_F(SerialQueueTest, GivesUpOnlyCallsThatHaveNotEnded) {
  DeviceDouble::Queue stream(*device_);
  SerialQueue queue(depot_);
  const Word before = queue.run_beside(&stream, noting(1));
  while (!queue.ended(before)) std::this_thread::yield();
  const auto open = std::make_shared<std::atomic<bool>>(false);
  stream.hold(open);
  const Word after = queue.run_beside(&stream, noting(2));
  EXPECT_FALSE(queue.has_given_up(after));
  queue.give_up();
  open->store(true);
  while (!queue.ended(after)) std::this_thread::yield();
  queue.give_up();  // A path may be aborted twice.
  EXPECT_FALSE(queue.has_given_up(before));
  EXPECT_TRUE(queue.has_given_up(after));
}

TEST_F(SerialQueueTest, TheHostLearnsThatACallHasEnded) {
  DeviceDouble::Queue stream(*device_);
  SerialQueue queue(depot_);
  const auto open = std::make_shared<std::atomic<bool>>(false);
  stream.hold(open);
  const Word number = queue.run_beside(&stream, noting(7));
  EXPECT_FALSE(queue.ended(number));
  open->store(true);
  while (!queue.ended(number)) std::this_thread::yield();
  EXPECT_EQ(ran_, std::vector<int>{7});
}

/// AddressSanitizer detects an access to the destroyed stream.
TEST_F(SerialQueueTest, DoesNotUseADestroyedStream) {
  DeviceDouble::Queue stays(*device_);
  SerialQueue queue(depot_);
  std::vector<int> expected;
  for (int number = 0; number < 40; number += 4) {
    const auto run_on_one_that_goes = [&](int of_call) {
      auto goes = std::make_unique<DeviceDouble::Queue>(*device_);
      queue.run_on(goes.get(), true, noting(of_call));
      goes->finish();
    };
    run_on_one_that_goes(number);
    queue.run_on(&stays, false, noting(number + 1));
    run_on_one_that_goes(number + 2);
    queue.run_beside(&stays, noting(number + 3));
    for (int i = 0; i < 4; ++i) expected.push_back(number + i);
  }
  const Word last = queue.end();
  while (!queue.ended(last)) std::this_thread::yield();
  EXPECT_EQ(ran_, expected);
}

TEST_F(SerialQueueTest, DoesNotWaitForACapturedCall) {
  DeviceDouble::Queue captured(*device_);
  DeviceDouble::Queue other(*device_);
  SerialQueue queue(depot_);
  captured.capture(true);
  queue.run_on(&captured, false, noting(1));
  const auto open = std::make_shared<std::atomic<bool>>(false);
  captured.hold(open);  // blocked until the graph runs
  queue.run_on(&other, false, noting(2));
  other.finish();
  const Word last = queue.end();
  while (!queue.ended(last)) std::this_thread::yield();
  open->store(true);
  captured.finish();
}

TEST_F(SerialQueueTest, ItsEndFollowsCallsOnTheCallersStreams) {
  DeviceDouble::Queue first(*device_);
  DeviceDouble::Queue second(*device_);
  SerialQueue queue(depot_);
  EXPECT_TRUE(queue.ended(queue.end())) << "there was no call";
  const auto open = std::make_shared<std::atomic<bool>>(false);
  first.hold(open);
  queue.run_on(&first, false, noting(1));
  queue.run_on(&second, false, noting(2));
  const Word last = queue.end();
  EXPECT_FALSE(queue.ended(last));
  open->store(true);
  while (!queue.ended(last)) std::this_thread::yield();
  EXPECT_EQ(ran_, (std::vector<int>{1, 2}));
}

TEST_F(SerialQueueTest, KeepsItsMemoryIfTheDeviceMayStillWriteToIt) {
  DeviceDouble::Queue stream(*device_);
  {
    SerialQueue idle(depot_);
    const Word last = idle.run_beside(&stream, noting(1));
    while (!idle.ended(last)) std::this_thread::yield();
  }
  const std::size_t given_back = depot_->unused_bytes();
  EXPECT_GT(given_back, 0U);
  const auto open = std::make_shared<std::atomic<bool>>(false);
  stream.hold(open);
  {
    SerialQueue busy(depot_);
    busy.run_beside(&stream, noting(2));
  }
  EXPECT_EQ(depot_->unused_bytes(), 0U) << "busy reused the block of idle, and keeps it";
  open->store(true);
}

}  // namespace
}  // namespace mccl::device
