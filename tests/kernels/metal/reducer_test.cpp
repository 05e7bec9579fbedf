// Tests reductions on a simulated Mac GPU, which runs the source of the real kernels.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <vector>

#include "kernels/metal/reduce_on_host.h"
#include "kernels/metal/source.h"
#include "kernels/reference.h"
#include "kernels/samples.h"
#include "kernels/unit.h"
#include "mccl/error.h"
#include "support/metal_double.h"

namespace mccl::kernels::metal {
namespace {

using mccl::testing::MetalDouble;

class MetalReducer : public ::testing::Test {
 protected:
  void SetUp() override {
    gpu_->run_kernel = mccl::testing::run_on_host;
    device::metal::replace_driver(gpu_);
  }
  void TearDown() override { device::metal::replace_driver(nullptr); }

  const std::shared_ptr<MetalDouble> gpu_ = std::make_shared<MetalDouble>();
  Samples samples_{7};
};

TEST_F(MetalReducer, GivesTheBitsOfTheHostAtAnyAlignment) {
  const auto unit = make_reducer({.threshold = 1});
  int runs = 0;
  for (const DType dtype : {DType::f16, DType::bf16}) {
    for (const ReduceKind kind :
         {ReduceKind::sum, ReduceKind::product, ReduceKind::min, ReduceKind::max}) {
      for (const std::size_t n : {1U, 7U, 1000U, 40'001U}) {
        Array a = samples_.array(dtype, n, samples_.below(17));
        const Array b = samples_.array(dtype, n, samples_.below(17));
        Array expected(a, 0);
        reference::reduce(dtype, kind, a.data(), b.data(), expected.data(), n);
        ASSERT_TRUE(unit->reduce(dtype, kind, a.data(), b.data(), a.data(), n));
        EXPECT_EQ(a, expected) << name_of(dtype) << " " << name_of(kind) << " " << n;
        EXPECT_EQ(gpu_->kernels_run, ++runs);
      }
    }
  }
  EXPECT_THAT(gpu_->violations(), ::testing::IsEmpty());
}

TEST_F(MetalReducer, ASumIsReadAfterItsKernelHasEnded) {
  std::promise<void> begun;
  std::promise<void> may_go_on;
  gpu_->run_kernel = [&](const auto&... arguments) {
    begun.set_value();
    may_go_on.get_future().wait();
    mccl::testing::run_on_host(arguments...);
  };
  const auto unit = make_reducer({.threshold = 1});
  const Array a = samples_.array(DType::bf16, 1000, 0);
  const Array b = samples_.array(DType::bf16, 1000, 0);
  const Array before = samples_.array(DType::bf16, 1000, 0);
  Array out(before, 0);
  Array expected(a, 0);
  reference::reduce(DType::bf16, ReduceKind::sum, a.data(), b.data(), expected.data(), 1000);
  auto ended = std::async(std::launch::async, [&] {
    return unit->reduce(DType::bf16, ReduceKind::sum, a.data(), b.data(), out.data(), 1000);
  });
  begun.get_future().wait();
  EXPECT_EQ(ended.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
  EXPECT_EQ(out, before) << "nothing is read while the kernel runs";
  may_go_on.set_value();
  EXPECT_TRUE(ended.get());
  EXPECT_EQ(out, expected);
}

TEST_F(MetalReducer, LeavesTheRestToTheHost) {
  const auto unit = make_reducer({.threshold = 100});
  std::vector<std::uint64_t> data(100);
  const auto takes = [&](DType dtype, ReduceKind kind, std::size_t n) {
    return unit->reduce(dtype, kind, data.data(), data.data(), data.data(), n);
  };
  EXPECT_FALSE(takes(DType::bf16, ReduceKind::sum, 99));
  EXPECT_FALSE(takes(DType::f32, ReduceKind::sum, 100));
  EXPECT_FALSE(takes(DType::i64, ReduceKind::avg, 100));
  EXPECT_EQ(gpu_->kernels_run, 0);
  EXPECT_TRUE(takes(DType::bf16, ReduceKind::sum, 100));
}

TEST_F(MetalReducer, CompilesTheRequestedKernels) {
  make_reducer({.fast_math = false, .path = "/there/strict.metallib"});
  EXPECT_FALSE(gpu_->loaded.fast_math);
  EXPECT_EQ(gpu_->loaded.path, "/there/strict.metallib");
  make_reducer({});
  EXPECT_TRUE(gpu_->loaded.fast_math);
  EXPECT_EQ(gpu_->loaded.source, source());
}

TEST(MetalReducerElsewhere, SaysThatThereIsNoMetal) {
  device::metal::replace_driver(nullptr);
  try {
    make_reducer({});
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("no Metal"));
  }
}

}  // namespace
}  // namespace mccl::kernels::metal
