// Tests the choice of the kernel and grid for a call.
#include <gtest/gtest.h>

#include <algorithm>

#include "backend/cuda/launch.h"

namespace mccl::cuda {
namespace {

Request all_reduce_of(std::size_t bytes) {
  Request request;
  request.call.collective = Collective::all_reduce;
  request.call.dtype = request.in.dtype = request.out.dtype = DType::bf16;
  request.in.count = request.out.count = request.call.count = bytes / 2;
  return request;
}

constexpr KernelLimits kAll{.packed_sum = 4000,
                            .flagged_sum = 1000,
                            .packed_parts = 10'000,
                            .flagged_parts = 6000,
                            .flagged_scatter = 3000,
                            .flagged_gather = 4000,
                            .flagged_broadcast = 5000,
                            .pooled_scatter = 20'000,
                            .pooled_gather = 30'000};

Kernel kernel_of(std::size_t bytes, int ranks, const KernelLimits& limits = kAll) {
  return launch_of(all_reduce_of(bytes), ranks, limits).kernel;
}

/// A call of four ranks whose longer buffer has four parts of `part` bytes.
Request in_parts(Collective collective, std::size_t part) {
  Request request = all_reduce_of(4 * part);
  request.call.collective = collective;
  if (collective == Collective::reduce_scatter) request.out.count /= 4;
  if (collective == Collective::all_gather) request.in.count /= 4;
  return request;
}

TEST(CudaLaunch, TheKernelOfAnAllReduceDependsOnItsLength) {
  EXPECT_EQ(kernel_of(4000, 2), Kernel::packed_sum);
  EXPECT_EQ(kernel_of(10'000, 2), Kernel::packed_parts);
  EXPECT_EQ(kernel_of(10'002, 2), Kernel::all_reduce);
}

TEST(CudaLaunch, WithoutWholeLinesEachLineOf16BytesHasItsFlag) {
  const KernelLimits limits = kAll.without_packed();
  EXPECT_EQ(kernel_of(1000, 2, limits), Kernel::flagged_sum);
  EXPECT_EQ(kernel_of(6000, 2, limits), Kernel::flagged_parts);
  EXPECT_EQ(kernel_of(6002, 2, limits), Kernel::all_reduce);
}

TEST(CudaLaunch, TheKernelOfOtherCallsDependsOnTheLongerBuffer) {
  const auto kernel = [](Collective collective, std::size_t part, bool reaches_inputs = false) {
    return launch_of(in_parts(collective, part), 4, kAll, kMostProcessors, reaches_inputs).kernel;
  };
  EXPECT_EQ(kernel(Collective::reduce_scatter, 750), Kernel::flagged_scatter);
  EXPECT_EQ(kernel(Collective::reduce_scatter, 752), Kernel::reduce_scatter);
  EXPECT_EQ(kernel(Collective::reduce_scatter, 5000), Kernel::reduce_scatter);
  EXPECT_EQ(kernel(Collective::reduce_scatter, 5000, true), Kernel::pooled_reduce_scatter);
  EXPECT_EQ(kernel(Collective::all_gather, 1000), Kernel::flagged_gather);
  EXPECT_EQ(kernel(Collective::all_gather, 1008, true), Kernel::all_gather);
  EXPECT_EQ(kernel(Collective::all_gather, 7504, true), Kernel::pooled_all_gather);
  EXPECT_EQ(kernel(Collective::all_to_all, 7504, true), Kernel::all_to_all);
  EXPECT_EQ(kernel(Collective::broadcast, 1250), Kernel::flagged_broadcast);
  EXPECT_EQ(kernel(Collective::broadcast, 1252), Kernel::broadcast);
}

TEST(CudaLaunch, CountsPartsByTheBytesOfOneRank) {
  EXPECT_EQ(launch_of(in_parts(Collective::reduce_scatter, 2000), 4, kAll).task.bytes, 2000U);
  EXPECT_EQ(launch_of(in_parts(Collective::all_to_all, 2000), 4, kAll).task.bytes, 2000U);
  EXPECT_EQ(launch_of(in_parts(Collective::all_gather, 2000), 4, kAll).task.bytes, 2000U);
  EXPECT_EQ(launch_of(in_parts(Collective::broadcast, 2000), 4, kAll).task.bytes, 8000U);
}

/// A training program computes while long sums run, so these must leave multiprocessors free.
TEST(CudaLaunch, LongCallsLeaveHalfOfTheMultiprocessorsToTheProgram) {
  const std::size_t part = std::size_t{8} << 20;
  for (const Collective collective :
       {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather}) {
    EXPECT_EQ(launch_of(in_parts(collective, part), 4, kAll).blocks, kMostProcessors / 2);
  }
  EXPECT_EQ(launch_of(in_parts(Collective::all_to_all, part), 4, kAll).blocks, 2 * kMostProcessors);
}

/// A packed line of 128 bytes holds 120 bytes of data. All lines must be handled in one pass.
TEST(CudaLaunch, ThereAreThreadsForTheFlagsOfPackedLines) {
  for (const std::size_t kib : {1, 8, 64, 128, 256, 512}) {
    const std::size_t bytes = kib << 10;
    const Launch launch = launch_of(all_reduce_of(bytes), 2, limits_of(2));
    ASSERT_EQ(launch.kernel, Kernel::packed_sum);
    EXPECT_GE(launch.blocks * launch.threads, (bytes + 119) / 120 * 8) << kib;
  }
}

TEST(CudaLaunch, ChoosesNoKernelWhoseDataDoesNotFit) {
  constexpr std::size_t kAny = ~std::size_t{0};
  const KernelLimits none{kAny, kAny, kAny, kAny, kAny, kAny, kAny, kAny, kAny};
  using kernels::cuda::kMostFlagged;
  using kernels::cuda::kMostPacked;
  EXPECT_EQ(kernel_of(kMostFlagged, 2, none.without_packed()), Kernel::flagged_sum);
  EXPECT_EQ(kernel_of(kMostPacked, 2, none), Kernel::packed_sum);
  EXPECT_EQ(kernel_of(2 * kMostPacked, 4, none), Kernel::packed_parts);
  EXPECT_EQ(kernel_of(2 * kMostPacked + 8, 4, none), Kernel::all_reduce);
}

TEST(CudaLaunch, TheGridDoesNotExceedTheFlagsOfTheArea) {
  for (std::size_t bytes = 2; bytes <= std::size_t{1} << 30; bytes *= 2) {
    for (const int ranks : {2, 8}) {
      const Launch launch = launch_of(all_reduce_of(bytes), ranks, limits_of(ranks));
      EXPECT_GE(launch.blocks, 1U);
      EXPECT_LE(launch.blocks, static_cast<unsigned>(kernels::cuda::kMostBlocks));
      EXPECT_LE(launch.threads, static_cast<unsigned>(kernels::cuda::kThreads));
      EXPECT_EQ(launch.threads % 32, 0U);
      EXPECT_EQ(launch.task.bytes, bytes);
    }
  }
}

/// A multiprocessor holds one block of kThreads threads, or two of half that size.
TEST(CudaLaunch, AllBlocksFitTheMultiprocessors) {
  for (std::size_t bytes = 2; bytes <= std::size_t{1} << 30; bytes *= 2) {
    for (const unsigned processors : {1U, 33U, 108U, 1000U}) {
      const Launch launch = launch_of(all_reduce_of(bytes), 2, limits_of(2), processors);
      const unsigned each = launch.threads <= kernels::cuda::kThreads / 2 ? 2 : 1;
      EXPECT_LE(launch.blocks, each * std::min(processors, kMostProcessors));
      EXPECT_GE(launch.blocks, 1U);
    }
  }
}

TEST(CudaLaunch, KernelNamesMatchTheImage) {
  EXPECT_EQ(name_of(Kernel::packed_parts, place_of(DType::bf16)), "mccl_packed_parts_bf16");
  EXPECT_EQ(name_of(Kernel::all_gather, 0), "mccl_all_gather");
  EXPECT_EQ(name_of(Kernel::pooled_reduce_scatter, 2), "mccl_pooled_reduce_scatter_bf16");
  EXPECT_EQ(place_of(DType::i32), -1);
}

}  // namespace
}  // namespace mccl::cuda
