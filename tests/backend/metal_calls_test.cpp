// Tests calls on the memory of a Mac's GPU: when they begin, what they copy, and how they fail.
#include <gmock/gmock.h>

#include "support/metal_double.h"
#include "support/ranks.h"

namespace mccl {
namespace {

using testing::MetalDouble;
using testing::run_failing_ranks;
using testing::run_ranks;
using testing::test_config;

class MetalCalls : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override { device::metal::replace_driver(gpu_); }
  void TearDown() override {
    device::metal::replace_driver(nullptr);
    gpu_->end();
  }

  /// Returns floats that the GPU sets to `value` at some later time.
  MetalDouble::MemoryPtr floats(std::size_t count, float value, bool shared = GetParam()) {
    auto memory = gpu_->make(count * sizeof(float), shared);
    gpu_->encode({}, {memory},
                 [=] { std::fill_n(reinterpret_cast<float*>(memory->inside()), count, value); });
    return memory;
  }
  static Buffer whole(const MetalDouble::MemoryPtr& memory) {
    return metal_buffer({memory.get(), 0}, memory->bytes() / sizeof(float), DType::f32);
  }
  CallOptions behind_all() {
    CallOptions options;
    options.fence = gpu_->fence();
    return options;
  }
  /// Returns the values as the GPU sees them.
  std::vector<float> seen(const MetalDouble::MemoryPtr& memory) {
    std::vector<float> values(memory->bytes() / sizeof(float));
    gpu_->encode({memory}, {},
                 [&] { std::memcpy(values.data(), memory->inside(), memory->bytes()); });
    gpu_->finish();
    return values;
  }

  const std::shared_ptr<MetalDouble> gpu_ = std::make_shared<MetalDouble>();
};

INSTANTIATE_TEST_SUITE_P(Storage, MetalCalls, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "shared" : "private"; });

TEST_P(MetalCalls, BeginWhenTheirFenceHasPassedAndCopyOnlyWhatIsPrivate) {
  run_ranks(2, [this](Context& context) {
    const auto memory = floats(16, 1.0F + static_cast<float>(context.rank()));
    context.world()->all_reduce(whole(memory), whole(memory), ReduceKind::sum, behind_all()).wait();
    EXPECT_THAT(seen(memory), ::testing::Each(3.0F));
    gpu_->forget(memory.get());
  });
  EXPECT_EQ(gpu_->copies(), GetParam() ? 0U : 4U);
  EXPECT_THAT(gpu_->violations(), ::testing::IsEmpty());
}

TEST_P(MetalCalls, OfPrivateMemoryAreCopiedInPieces) {
  run_ranks(2, [this](Context& context) {
    for (int round = 1; round <= 3; ++round) {
      const auto memory = floats(5001, static_cast<float>(round * (1 + context.rank())));
      context.world()
          ->all_reduce(whole(memory), whole(memory), ReduceKind::sum, behind_all())
          .wait();
      EXPECT_THAT(seen(memory), ::testing::Each(3.0F * static_cast<float>(round)));
      gpu_->forget(memory.get());
    }
  });
  if (!GetParam()) {
    EXPECT_GT(gpu_->copies(), 2U * 3 * 20);
  }
  EXPECT_THAT(gpu_->violations(), ::testing::IsEmpty());
}

TEST_P(MetalCalls, AreStagedIfForced) {
  run_ranks(
      2,
      [this](Context& context) {
        const auto memory = floats(16, 1.0F + static_cast<float>(context.rank()));
        const auto part = context.world()->split(0, context.rank());
        for (const auto& group : {context.world(), part}) {
          group->all_reduce(whole(memory), whole(memory), ReduceKind::max, behind_all()).wait();
          EXPECT_THAT(seen(memory), ::testing::Each(2.0F));
        }
        gpu_->forget(memory.get());
      },
      [](int) {
        Config config = test_config();
        config.force_staging = true;
        return config;
      });
  EXPECT_EQ(gpu_->copies(), 8U) << "two ranks copy in and out, in two calls";
  EXPECT_THAT(gpu_->violations(), ::testing::IsEmpty());
}

/// The copy fails halfway, while the ranks work on earlier pieces.
TEST_P(MetalCalls, ACopyThatFailsWhileTheCallRunsIsAnErrorOnEveryRank) {
  if (GetParam()) GTEST_SKIP() << "shared memory is not copied";
  const auto said = run_failing_ranks(2, [this](Context& context) {
    const auto memory = floats(5001, 1.0F);
    if (context.rank() == 0) gpu_->fail_copy_after(20);
    context.world()->all_reduce(whole(memory), whole(memory), ReduceKind::sum, behind_all()).wait();
  });
  for (const std::string& each : said) EXPECT_THAT(each, ::testing::HasSubstr("a copy failed"));
}

TEST_P(MetalCalls, LaterCallsOfTheGroupComeAfterOneThatWaits) {
  run_ranks(1, [this](Context& context) {
    const auto memory = floats(10, 1.0F);
    gpu_->hold(true);
    const Work first =
        context.world()->all_reduce(whole(memory), whole(memory), ReduceKind::sum, behind_all());
    const Work second = context.world()->barrier();
    EXPECT_THROW(second.wait(std::chrono::milliseconds(20)), TimeoutError);
    EXPECT_FALSE(first.done());
    gpu_->hold(false);
    second.wait();
    // Private memory is copied back after the ranks are done, while the next call begins.
    if (!GetParam()) first.wait();
    EXPECT_TRUE(first.done());
    gpu_->forget(memory.get());
  });
}

TEST_P(MetalCalls, ABarrierCanHaveAFence) {
  run_ranks(2, [this](Context& context) {
    const auto memory = floats(10, 1.0F);
    context.world()->barrier(behind_all()).wait();
    // After the barrier, the host may access the memory.
    if (GetParam()) {
      EXPECT_EQ(static_cast<const float*>(whole(memory).data)[9], 1.0F);
    }
    gpu_->forget(memory.get());
  });
}

TEST_P(MetalCalls, AWaitOfAStreamBlocksTheHost) {
  run_ranks(2, [this](Context& context) {
    const auto memory = floats(10, 1.0F);
    const Work work =
        context.world()->all_reduce(whole(memory), whole(memory), ReduceKind::sum, behind_all());
    work.wait_on_stream(nullptr);
    EXPECT_TRUE(work.done());
    EXPECT_THAT(seen(memory), ::testing::Each(2.0F));
    gpu_->forget(memory.get());
  });
}

/// Each call has its own time limit: the first call runs for longer than the time limit of the
/// second.
TEST_P(MetalCalls, AGpuStepHasTheTimeoutOfItsCall) {
  const auto said = run_failing_ranks(1, [this](Context& context) {
    const auto patient = floats(10, 1.0F);
    const auto memory = floats(10, 1.0F);
    gpu_->hold(true);
    CallOptions options = behind_all();
    options.timeout = std::chrono::milliseconds(0);  // no time limit
    const auto part = context.world()->split(0, 0);
    const Work goes_on = part->all_reduce(whole(patient), whole(patient), ReduceKind::sum, options);
    options = behind_all();
    options.timeout = std::chrono::milliseconds(30);
    const Work work =
        context.world()->all_reduce(whole(memory), whole(memory), ReduceKind::sum, options);
    try {
      work.wait();
    } catch (...) {
      EXPECT_FALSE(goes_on.done());
      gpu_->hold(false);
      goes_on.wait();
      EXPECT_THAT(seen(patient), ::testing::Each(1.0F));
      throw;
    }
  });
  EXPECT_THAT(said[0],
              ::testing::HasSubstr("timed out before its input was copied from the device"));
}

TEST_P(MetalCalls, ACopyThatFailsIsAnErrorOnEveryRank) {
  if (GetParam()) GTEST_SKIP() << "shared memory is not copied";
  const auto said = run_failing_ranks(2, [this](Context& context) {
    const auto memory = floats(10, 1.0F);
    if (context.rank() == 1) {
      const Work work =
          context.world()->all_reduce(whole(memory), whole(memory), ReduceKind::sum, behind_all());
      work.wait();
      return;
    }
    gpu_->break_copies(true);
    context.world()->all_reduce(whole(memory), whole(memory), ReduceKind::sum, behind_all()).wait();
  });
  for (const std::string& each : said) EXPECT_THAT(each, ::testing::HasSubstr("a copy failed"));
}

TEST_P(MetalCalls, ClearTheRoundingErrorAfterTheFence) {
  if (!GetParam()) GTEST_SKIP() << "left_out must be host memory, such as shared memory";
  run_ranks(2, [this](Context& context) {
    const auto memory = floats(10, 1.0F);
    const auto left = floats(10, 7.0F);
    CallOptions options = behind_all();
    options.left_out = whole(left);
    context.world()->all_reduce(whole(memory), whole(memory), ReduceKind::sum, options).wait();
    EXPECT_THAT(seen(left), ::testing::Each(0.0F));
    for (const auto& each : {memory, left}) gpu_->forget(each.get());
  });
}

TEST_P(MetalCalls, CopiesBesideTheCallersQueue) {
  const auto from = floats(8, 5.0F);
  const auto to = floats(8, 1.0F);
  gpu_->finish();
  const MetalCopy copies[] = {{{from.get(), 0}, {to.get(), 4}, 8},
                              {{from.get(), 8}, {to.get(), 24}, 4}};
  metal_copy(copies);
  EXPECT_THAT(seen(to), ::testing::ElementsAre(1, 5, 5, 1, 1, 1, 5, 1));
  EXPECT_THAT(gpu_->violations(), ::testing::IsEmpty());
}

TEST_P(MetalCalls, MemoryBeyondTheEndOfItsBufferIsRefused) {
  const auto memory = gpu_->make(40, GetParam());
  EXPECT_EQ(metal_buffer({memory.get(), 36}, 1, DType::f32).count, 1U);
  EXPECT_THROW(metal_buffer({memory.get(), 36}, 2, DType::f32), InvalidArgument);
  EXPECT_THROW(metal_buffer({memory.get(), 44}, 1, DType::f32), InvalidArgument);
  EXPECT_THROW(metal_buffer({nullptr, 0}, 1, DType::f32), InvalidArgument);
  EXPECT_EQ(metal_buffer({nullptr, 0}, 0, DType::f32).count, 0U);
}

TEST(MetalElsewhere, SaysThatThereIsNone) {
  try {
    int nothing = 0;
    metal_buffer({&nothing, 0}, 1, DType::f32);
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("no Metal"));
  }
}

// --- Tests of MetalDouble itself -----------------------------------------------------------------

TEST(MetalDoubleDeathTest, DetectsAHostReadBeforeTheGpuHasWritten) {
  const auto gpu = std::make_shared<MetalDouble>();
  device::metal::replace_driver(gpu);
  const auto memory = gpu->make(4, true);
  auto* const host = reinterpret_cast<volatile char*>(gpu->contents(memory.get()));
  *host = 1;
  gpu->hold(true);
  gpu->encode({}, {memory}, [] {});
  EXPECT_DEATH(*host = 2, "");
  gpu->hold(false);
  gpu->finish();
  *host = 2;
  gpu->encode({memory}, {}, [] {});
  gpu->hold(true);
  EXPECT_EQ(*host, 2) << "the host may read while the GPU reads";
  EXPECT_DEATH(*host = 3, "");
  gpu->hold(false);
  device::metal::replace_driver(nullptr);
}

TEST(MetalDoubleSees, ACopyBeforeTheFence) {
  const auto gpu = std::make_shared<MetalDouble>();
  const auto from = gpu->make(4, false);
  const auto to = gpu->make(4, false);
  gpu->encode({}, {from}, [] {});
  const MetalCopy one{{from.get(), 0}, {to.get(), 0}, 4};
  gpu->copy({&one, 1});
  EXPECT_THAT(gpu->violations(), ::testing::ElementsAre(::testing::HasSubstr("before its fence")));
}

}  // namespace
}  // namespace mccl
