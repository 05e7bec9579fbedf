// Tests the order of calls that a device carries out itself.
#include "device/lane.h"

#include <gtest/gtest.h>

#include <vector>

#include "support/device_double.h"

namespace mccl::device {
namespace {

using testing::DeviceDouble;

class LaneTest : public ::testing::Test {
 protected:
  /// Makes a call that records its number when it runs.
  Lane::Act noting(int number) {
    return [this, number](void* stream) {
      static_cast<DeviceDouble::Queue*>(stream)->enqueue(
          [this, number] { ran_.push_back(number); });
    };
  }

  const std::shared_ptr<DeviceDouble> device_ = std::make_shared<DeviceDouble>();
  const std::shared_ptr<Depot> depot_ = std::make_shared<Depot>(device_);
  std::vector<int> ran_;  // used only by the device's thread
};

TEST_F(LaneTest, CallsOfSeveralStreamsRunInTheirOrder) {
  DeviceDouble::Queue first(*device_);
  DeviceDouble::Queue second(*device_);
  Lane lane(depot_);
  const auto open = std::make_shared<std::atomic<bool>>(false);
  first.hold(open);
  std::vector<int> expected;
  for (int number = 0; number < 60; number += 4) {
    lane.run_beside(&first, noting(number));
    lane.run_on(&second, false, noting(number + 1));
    lane.run_on(&first, false, noting(number + 2));
    lane.run_beside(&second, noting(number + 3));
    for (int i = 0; i < 4; ++i) expected.push_back(number + i);
  }
  open->store(true);
  DeviceDouble::Queue last(*device_);
  lane.lead(&last);
  last.finish();
  EXPECT_EQ(ran_, expected);
}

TEST_F(LaneTest, OnlyCallsThatEndAfterItCountAsGivenUp) {
  DeviceDouble::Queue stream(*device_);
  Lane lane(depot_);
  const Word before = lane.run_beside(&stream, noting(1));
  while (!lane.ended(before)) std::this_thread::yield();
  const auto open = std::make_shared<std::atomic<bool>>(false);
  stream.hold(open);
  const Word after = lane.run_beside(&stream, noting(2));
  EXPECT_FALSE(lane.has_given_up(after));
  lane.give_up();
  open->store(true);
  while (!lane.ended(after)) std::this_thread::yield();
  lane.give_up();  // A path may be aborted twice.
  EXPECT_FALSE(lane.has_given_up(before));
  EXPECT_TRUE(lane.has_given_up(after));
}

TEST_F(LaneTest, TheHostLearnsThatACallBesideItsStreamIsOver) {
  DeviceDouble::Queue stream(*device_);
  Lane lane(depot_);
  const auto open = std::make_shared<std::atomic<bool>>(false);
  stream.hold(open);
  const Word number = lane.run_beside(&stream, noting(7));
  EXPECT_FALSE(lane.ended(number));
  open->store(true);
  while (!lane.ended(number)) std::this_thread::yield();
  EXPECT_EQ(ran_, std::vector<int>{7});
}

/// AddressSanitizer detects an access to the destroyed stream.
TEST_F(LaneTest, AStreamThatIsGoneIsNotTouched) {
  DeviceDouble::Queue stays(*device_);
  Lane lane(depot_);
  std::vector<int> expected;
  for (int number = 0; number < 40; number += 4) {
    const auto run_on_one_that_goes = [&](int of_call) {
      auto goes = std::make_unique<DeviceDouble::Queue>(*device_);
      lane.run_on(goes.get(), true, noting(of_call));
      goes->finish();
    };
    run_on_one_that_goes(number);
    lane.run_on(&stays, false, noting(number + 1));
    run_on_one_that_goes(number + 2);
    lane.run_beside(&stays, noting(number + 3));
    for (int i = 0; i < 4; ++i) expected.push_back(number + i);
  }
  const Word last = lane.end();
  while (!lane.ended(last)) std::this_thread::yield();
  EXPECT_EQ(ran_, expected);
}

TEST_F(LaneTest, ACallThatIsCapturedIsNoPlaceToWaitFor) {
  DeviceDouble::Queue captured(*device_);
  DeviceDouble::Queue other(*device_);
  Lane lane(depot_);
  captured.capture(true);
  lane.run_on(&captured, false, noting(1));
  const auto open = std::make_shared<std::atomic<bool>>(false);
  captured.hold(open);  // blocked until the graph runs
  lane.run_on(&other, false, noting(2));
  other.finish();
  const Word last = lane.end();
  while (!lane.ended(last)) std::this_thread::yield();
  open->store(true);
  captured.finish();
}

TEST_F(LaneTest, ItsEndIsBehindCallsOnTheCallersStreams) {
  DeviceDouble::Queue first(*device_);
  DeviceDouble::Queue second(*device_);
  Lane lane(depot_);
  EXPECT_TRUE(lane.ended(lane.end())) << "there was no call";
  const auto open = std::make_shared<std::atomic<bool>>(false);
  first.hold(open);
  lane.run_on(&first, false, noting(1));
  lane.run_on(&second, false, noting(2));
  const Word last = lane.end();
  EXPECT_FALSE(lane.ended(last));
  open->store(true);
  while (!lane.ended(last)) std::this_thread::yield();
  EXPECT_EQ(ran_, (std::vector<int>{1, 2}));
}

}  // namespace
}  // namespace mccl::device
