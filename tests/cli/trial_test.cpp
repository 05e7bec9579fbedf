// Tests every routine on real groups: a correct result is accepted, and a single wrong bit is
// detected.
#include "cli/bench/trial.h"

#include <gtest/gtest.h>

#include <atomic>

#include "support/ranks.h"

namespace mccl::cli::bench {
namespace {

struct Case {
  int ranks;
  DType dtype;
  ReduceKind op;
  int root;
};

class EveryRoutine : public ::testing::TestWithParam<Case> {};

TEST_P(EveryRoutine, IsRightOutOfPlaceAndInPlace) {
  const Case& example = GetParam();
  Options options;
  options.dtype = example.dtype;
  options.op = {example.op, 2};
  options.root = example.root;
  testing::run_ranks(example.ranks, [&](Context& context) {
    for (const RoutineInfo& info : routines()) {
      const CallSize shape = shape_of(info.routine, 9999, options.dtype, example.ranks);
      const Memory a(shape.bytes);
      const Memory b(shape.bytes);
      for (const bool in_place : {false, true}) {
        if (in_place ? !info.in_place : !info.out_of_place) continue;
        const Trial trial(*context.world(), info.routine, shape, options, in_place, false, a, b);
        trial.fill();
        trial.run();
        EXPECT_EQ(trial.wrong(), 0U) << info.name << (in_place ? " in place" : "");
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Cases, EveryRoutine,
                         ::testing::Values(Case{2, DType::f32, ReduceKind::sum, 0},
                                           Case{3, DType::bf16, ReduceKind::avg, 2},
                                           Case{4, DType::i8, ReduceKind::bxor, 1},
                                           Case{3, DType::c128, ReduceKind::premul_sum, 1}));

TEST(Trial, OneWrongBitIsOneWrongElement) {
  Options options;
  std::atomic<std::uint64_t> wrong = 0;
  testing::run_ranks(2, [&](Context& context) {
    for (const Routine routine : {Routine::all_reduce, Routine::all_gather, Routine::all_to_all}) {
      const CallSize shape = shape_of(routine, 4096, options.dtype, 2);
      const Memory a(shape.bytes);
      const Memory b(shape.bytes);
      const Trial trial(*context.world(), routine, shape, options, false, false, a, b);
      trial.fill();
      trial.run();
      if (context.rank() == 1) b.bytes()[shape.bytes - 1] ^= std::byte{1};
      wrong += trial.wrong();
    }
  });
  EXPECT_EQ(wrong, 3U);
}

TEST(Trial, EveryElementIsWrongWithoutTheCall) {
  Options options;
  testing::run_ranks(2, [&](Context& context) {
    const CallSize shape = shape_of(Routine::broadcast, 4096, options.dtype, 2);
    const Memory a(shape.bytes);
    const Trial trial(*context.world(), Routine::broadcast, shape, options, true, false, a, a);
    trial.fill();
    EXPECT_EQ(trial.wrong(), context.rank() == 0 ? 0U : shape.total);
  });
}

/// The inputs of compressed sums have exact results when nothing is compressed.
TEST(Trial, NumbersThatEveryCodecCanCarryHaveExactSumsToo) {
  Options options;
  testing::run_ranks(2, [&](Context& context) {
    for (const Routine routine : {Routine::all_reduce, Routine::reduce_scatter}) {
      const CallSize shape = shape_of(routine, 40'000, options.dtype, 2);
      const Memory a(shape.bytes);
      const Memory b(shape.bytes);
      const Trial trial(*context.world(), routine, shape, options, false, true, a, b);
      trial.fill();
      trial.run(kExact);
      EXPECT_EQ(trial.error(), 0);
    }
  });
}

}  // namespace
}  // namespace mccl::cli::bench
