#include "cli/bench/routine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "mccl/error.h"

namespace mccl::cli::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Routine, EveryRoutineHasItsOwnRow) {
  std::vector<Routine> all;
  for (const RoutineInfo& info : routines()) {
    EXPECT_EQ(info_of(info.routine).name, info.name);
    all.push_back(info.routine);
  }
  const std::array<std::string_view, 1> names = {"all"};
  EXPECT_EQ(parse_routines(names), all);
  EXPECT_EQ(all.size(), 10U);
}

TEST(Routine, KeepsTheOrderOfNames) {
  const std::array<std::string_view, 2> names = {"sendrecv", "all_reduce"};
  EXPECT_THAT(parse_routines(names), ElementsAre(kSendrecv, Routine::all_reduce));
}

TEST(Routine, SuggestsTheNearestName) {
  const std::array<std::string_view, 1> names = {"all_redcue"};
  try {
    parse_routines(names);
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("did you mean all_reduce?"));
  }
}

TEST(Routine, BusBandwidthMatchesNcclTests) {
  EXPECT_DOUBLE_EQ(bus_factor(Routine::all_reduce, 2), 1);
  EXPECT_DOUBLE_EQ(bus_factor(Routine::all_reduce, 4), 1.5);
  for (const Routine routine : {Routine::all_gather, Routine::reduce_scatter, Routine::all_to_all,
                                Routine::gather, Routine::scatter})
    EXPECT_DOUBLE_EQ(bus_factor(routine, 4), 0.75);
  for (const Routine routine : {Routine::broadcast, Routine::reduce, kSendrecv})
    EXPECT_DOUBLE_EQ(bus_factor(routine, 4), 1);
}

TEST(Routine, RoundsSizesToWholeElementsOfAllParts) {
  const CallSize reduced = shape_of(Routine::all_reduce, 1026, DType::f32, 4);
  EXPECT_EQ(reduced.part, 256U);
  EXPECT_EQ(reduced.total, 256U);
  EXPECT_EQ(reduced.bytes, 1024U);
  const CallSize gathered = shape_of(Routine::all_gather, 1024, DType::f32, 3);
  EXPECT_EQ(gathered.part, 85U);
  EXPECT_EQ(gathered.total, 255U);
  EXPECT_EQ(gathered.bytes, 1020U);
}

TEST(Routine, ThereIsAlwaysAnElement) {
  EXPECT_EQ(shape_of(Routine::all_reduce, 1, DType::f64, 3).bytes, 8U);
  EXPECT_EQ(shape_of(Routine::all_gather, 8, DType::f64, 3).bytes, 24U);
  EXPECT_EQ(shape_of(Routine::barrier, 8, DType::f64, 3).bytes, 0U);
}

}  // namespace
}  // namespace mccl::cli::bench
