// Tests that the verifier detects defects in schedules whose data is read where it lies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "cases.h"
#include "schedule/builder.h"
#include "scheduled_group.h"

namespace mccl::schedule {
namespace {

using ::testing::HasSubstr;

/// A broadcast whose readers read the root's output where it lies. `damage` appends steps to it.
std::string fault_in_place(const std::function<void(const Problem&, ScheduleBuilder&)>& damage,
                           const Region& read = output({0, 4})) {
  return fault_of(kBroadcast, [&](const Problem& p, ScheduleBuilder& b) {
    b.use_window(4);
    b.allow_reading({.output = true});
    if (p.rank == 0) b.publish(output({0, 4}), 0);
    b.await(1 - p.rank, b.arrive());
    if (p.rank == 1) b.read(0, 0, read, output({0, 4}));
    damage(p, b);
  });
}

TEST(Verify, FindsMemoryThatChangesWhileItIsRead) {
  EXPECT_EQ(fault_in_place([](const Problem&, ScheduleBuilder&) {}), "");
  // The root overwrites its output although rank 1 may not have read it yet.
  EXPECT_THAT(fault_in_place([](const Problem& p, ScheduleBuilder& b) {
                const Extent copy = b.reserve_scratch(4);
                b.copy(output({0, 4}), scratch(copy));
                if (p.rank == 0) b.copy(scratch(copy), output({0, 4}));
              }),
              HasSubstr("overwrites what rank 1 may not have read yet"));
  // It waits first.
  EXPECT_EQ(fault_in_place([](const Problem& p, ScheduleBuilder& b) {
              const Extent copy = b.reserve_scratch(4);
              b.copy(output({0, 4}), scratch(copy));
              b.await(1 - p.rank, b.arrive());
              if (p.rank == 0) b.copy(scratch(copy), output({0, 4}));
            }),
            "");
  EXPECT_THAT(fault_in_place([](const Problem&, ScheduleBuilder&) {}, output({0, 3})),
              HasSubstr("elements"));
}

TEST(Verify, FindsARankThatLeavesWhileItsMemoryIsRead) {
  for (const Collective collective : kCollectives) {
    if (collective == Collective::barrier) continue;
    Case shared{.collective = collective,
                .size = 4,
                .root = 1,
                .count = 9,
                .chunk = 3,
                .placement = Placement::one_node,
                .window = 64};
    if (has_parts(collective)) shared.counts = {5, 0, 7, 3};
    for (const Algorithm through : {Algorithm::one_shot, Algorithm::two_shot}) {
      if (!can(through, problem_of(shared, 0))) continue;
      // In this case, the root's wait for the results shows that all operands have been read.
      if (through == Algorithm::two_shot && collective == Collective::reduce) continue;
      ScheduledGroup group(through, shared);
      ASSERT_EQ(group.defect(), "") << describe(through, shared);
      if (!group.schedules[0].readable.input && !group.schedules[0].readable.output) continue;
      for (Schedule& schedule : group.schedules) {
        for (Step& step : schedule.steps)
          if (step.kind == StepKind::await_readers) step.kind = StepKind::arrive;
        ++schedule.arrivals;
      }
      EXPECT_THAT(group.defect(), HasSubstr("may not have read yet")) << describe(through, shared);
    }
  }
}

TEST(Verify, FindsAnInputThatIsReadWhileItBecomesTheOutput) {
  ScheduledGroup group(Algorithm::one_shot, {.size = 3,
                                             .count = 40,
                                             .chunk = 8,
                                             .in_place = true,
                                             .placement = Placement::one_node,
                                             .window = 64});
  ASSERT_EQ(group.defect(), "");
  for (Schedule& schedule : group.schedules) schedule.readable.input = true;
  EXPECT_THAT(group.defect(), HasSubstr("may not have"));
}

}  // namespace
}  // namespace mccl::schedule
