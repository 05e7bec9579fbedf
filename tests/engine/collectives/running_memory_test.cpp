// Tests when the steps of a call may run whose input arrives, and whose output is fetched, during
// the call.
#include "engine/collectives/running_memory.h"

#include <gtest/gtest.h>

namespace mccl::engine {
namespace {

using schedule::Region;
using schedule::Schedule;
using schedule::Space;
using schedule::Step;
using schedule::StepKind;

class ConveyorDouble final : public Conveyor {
 public:
  std::size_t arrived() const override { return arrived_bytes; }
  std::size_t piece_of_output() const override { return 40; }
  void deliver(std::size_t bytes) override { delivered = bytes; }

  std::size_t arrived_bytes = 0;
  std::size_t delivered = 0;
};

constexpr std::size_t kCount = 25;  // floats of four bytes: two and a half pieces

class RunningMemoryTest : public ::testing::Test {
 protected:
  RunningMemoryTest() {
    task_.call.dtype = DType::f32;
    task_.in = {data_, kCount, DType::f32};
    task_.out = {data_, kCount, DType::f32};
    task_.conveyor = &conveyor_;
  }
  static Step copy(Region from, Region to) {
    return {.kind = StepKind::copy, .src = from, .dst = to};
  }
  static Region input(std::size_t begin, std::size_t count) { return {Space::input, begin, count}; }
  static Region output(std::size_t begin, std::size_t count) {
    return {Space::output, begin, count};
  }

  float data_[kCount] = {};
  ConveyorDouble conveyor_;
  Task task_;
  Schedule schedule_;
  RunningMemory memory_;
};

TEST_F(RunningMemoryTest, AStepWaitsForTheInputThatItReads) {
  schedule_.steps = {copy(input(0, 10), output(0, 10)), copy(input(10, 15), output(10, 15))};
  memory_.begin(task_, schedule_);
  EXPECT_FALSE(memory_.allows(schedule_.steps[0]));
  conveyor_.arrived_bytes = 40;
  EXPECT_TRUE(memory_.allows(schedule_.steps[0]));
  EXPECT_FALSE(memory_.allows(schedule_.steps[1]));
  EXPECT_TRUE(memory_.waits());
  conveyor_.arrived_bytes = 100;
  EXPECT_TRUE(memory_.allows(schedule_.steps[1]));
  EXPECT_FALSE(memory_.waits());
}

TEST_F(RunningMemoryTest, InPlaceWritesWaitForTheInput) {
  const Step receive{.kind = StepKind::recv, .src = {}, .dst = output(0, 20)};
  schedule_.steps = {receive};
  memory_.begin(task_, schedule_);
  EXPECT_TRUE(memory_.allows(receive)) << "the output does not overlap the input";
  task_.in_place = true;
  memory_.begin(task_, schedule_);
  EXPECT_FALSE(memory_.allows(receive));
  conveyor_.arrived_bytes = 80;
  EXPECT_TRUE(memory_.allows(receive));
}

TEST_F(RunningMemoryTest, APieceIsDeliveredWhenItsLastWriterHasEndedAndThoseBeforeIt) {
  schedule_.steps = {copy(input(0, 15), output(0, 15)), copy(input(15, 10), output(15, 10)),
                     copy(input(0, 5), output(0, 5))};
  memory_.begin(task_, schedule_);
  memory_.ended(schedule_.steps[1]);
  EXPECT_EQ(conveyor_.delivered, 0U);
  memory_.ended(schedule_.steps[0]);
  EXPECT_EQ(conveyor_.delivered, 0U) << "another step still writes the first piece";
  memory_.ended(schedule_.steps[2]);
  EXPECT_EQ(conveyor_.delivered, 100U);
}

TEST_F(RunningMemoryTest, UnwrittenPartsAreCompleteFromTheStart) {
  schedule_.steps = {copy(input(10, 5), output(10, 5))};
  memory_.begin(task_, schedule_);
  EXPECT_EQ(conveyor_.delivered, 40U);
  memory_.ended(schedule_.steps[0]);
  EXPECT_EQ(conveyor_.delivered, 100U);
}

TEST_F(RunningMemoryTest, AllInputIsThereWithoutAConveyor) {
  task_.conveyor = nullptr;
  schedule_.steps = {copy(input(0, 25), output(0, 25))};
  memory_.begin(task_, schedule_);
  EXPECT_TRUE(memory_.allows(schedule_.steps[0]));
  EXPECT_FALSE(memory_.waits());
  memory_.ended(schedule_.steps[0]);
}

}  // namespace
}  // namespace mccl::engine
