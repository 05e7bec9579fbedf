#include "support/verifier/describe.h"

#include <gtest/gtest.h>

namespace mccl::schedule {
namespace {

TEST(Describe, NamesWhatEachStepTouches) {
  const Region in{Space::input, 0, 16};
  const Region out{Space::output, 16, 8};
  EXPECT_EQ(describe(in), "input[0..16)");
  EXPECT_EQ(describe(Step{.kind = StepKind::send, .peer = 3, .src = in, .dst = {}}),
            "send input[0..16) to rank 3");
  EXPECT_EQ(describe(Step{.kind = StepKind::recv, .peer = 3, .src = {}, .dst = out}),
            "receive output[16..24) from rank 3");
  EXPECT_EQ(describe(Step{.kind = StepKind::fold, .operands = 2, .src = in, .dst = out}),
            "output[16..24) = fold of 2 in input[0..16)");
  EXPECT_EQ(describe(Step{.kind = StepKind::await, .mark = 4, .src = {}, .dst = {}}),
            "wait for arrival 4 of all");
  EXPECT_EQ(describe(Step{.kind = StepKind::await, .peer = 1, .mark = 4, .src = {}, .dst = {}}),
            "wait for arrival 4 of rank 1");
}

}  // namespace
}  // namespace mccl::schedule
