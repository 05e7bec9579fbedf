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

constexpr Limits kAll{
    .flagged_to_all = 1000, .packed_to_all = 4000, .flagged_part = 3000, .packed_part = 5000};

Kernel kernel_of(std::size_t bytes, int ranks, const Limits& limits = kAll) {
  return launch_of(all_reduce_of(bytes), ranks, limits).kernel;
}

TEST(CudaLaunch, AnAllReduceGoesByItsLength) {
  EXPECT_EQ(kernel_of(4000, 2), Kernel::packed_sum);
  EXPECT_EQ(kernel_of(10'000, 2), Kernel::packed_parts);
  EXPECT_EQ(kernel_of(10'002, 2), Kernel::all_reduce);
  EXPECT_EQ(kernel_of(1000, 4), Kernel::packed_sum) << "three times as much is sent";
}

TEST(CudaLaunch, WithoutWholeLinesEachLineOf16BytesHasItsFlag) {
  const Limits limits = kAll.without_packed();
  EXPECT_EQ(kernel_of(1000, 2, limits), Kernel::flagged_sum);
  EXPECT_EQ(kernel_of(6000, 2, limits), Kernel::flagged_parts);
  EXPECT_EQ(kernel_of(6002, 2, limits), Kernel::all_reduce);
}

/// A packed line of 128 bytes holds 120 bytes of data. All lines must be handled in one pass.
TEST(CudaLaunch, ThereAreThreadsForTheFlagsOfPackedLines) {
  for (const std::size_t kib : {1, 8, 64, 128, 256, 512}) {
    const std::size_t bytes = kib << 10;
    const Launch launch = launch_of(all_reduce_of(bytes), 2);
    ASSERT_EQ(launch.kernel, Kernel::packed_sum);
    EXPECT_GE(launch.blocks * launch.threads, (bytes + 119) / 120 * 8) << kib;
  }
}

TEST(CudaLaunch, NothingGoesWhereItHasNoRoom) {
  const Limits none{.flagged_to_all = ~std::size_t{0},
                    .packed_to_all = ~std::size_t{0},
                    .flagged_part = ~std::size_t{0},
                    .packed_part = ~std::size_t{0}};
  using kernels::cuda::kMostFlagged;
  using kernels::cuda::kMostPacked;
  EXPECT_EQ(kernel_of(kMostFlagged, 2, none.without_packed()), Kernel::flagged_sum);
  EXPECT_EQ(kernel_of(kMostPacked, 2, none), Kernel::packed_sum);
  EXPECT_EQ(kernel_of(2 * kMostPacked, 4, none), Kernel::packed_parts);
  EXPECT_EQ(kernel_of(2 * kMostPacked + 8, 4, none), Kernel::all_reduce);
}

TEST(CudaLaunch, TheGridIsWithinWhatTheAreaHasFlagsFor) {
  for (std::size_t bytes = 2; bytes <= std::size_t{1} << 30; bytes *= 2) {
    for (const int ranks : {2, 8}) {
      const Launch launch = launch_of(all_reduce_of(bytes), ranks);
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
      const Launch launch = launch_of(all_reduce_of(bytes), 2, {}, processors);
      const unsigned each = launch.threads <= kernels::cuda::kThreads / 2 ? 2 : 1;
      EXPECT_LE(launch.blocks, each * std::min(processors, kMostProcessors));
      EXPECT_GE(launch.blocks, 1U);
    }
  }
}

TEST(CudaLaunch, PartsAreCountedByWhatOneRankGets) {
  Request request = all_reduce_of(8000);
  request.call.collective = Collective::reduce_scatter;
  request.out.count = 1000;
  const Launch launch = launch_of(request, 4);
  EXPECT_EQ(launch.kernel, Kernel::flagged_scatter);
  EXPECT_EQ(launch.task.bytes, 2000U);
}

TEST(CudaLaunch, OnlyCallsThatAreStagedHaveAWayWithout) {
  EXPECT_EQ(pooled(Kernel::all_reduce), Kernel::pooled_all_reduce);
  EXPECT_EQ(pooled(Kernel::broadcast), Kernel::pooled_broadcast);
  EXPECT_EQ(pooled(Kernel::packed_sum), Kernel::packed_sum);
  for (int kernel = 0; kernel < kKernels; ++kernel) {
    const auto which = static_cast<Kernel>(kernel);
    EXPECT_EQ(sums(pooled(which)), sums(which)) << name_of(which, 0);
  }
  EXPECT_EQ(name_of(Kernel::pooled_all_reduce, 2), "mccl_pooled_all_reduce_bf16");
}

TEST(CudaLaunch, KernelsAreNamedAsTheImageHasThem) {
  EXPECT_EQ(name_of(Kernel::packed_parts, place_of(DType::bf16)), "mccl_packed_parts_bf16");
  EXPECT_EQ(name_of(Kernel::all_gather, 0), "mccl_all_gather");
  EXPECT_EQ(place_of(DType::i32), -1);
}

}  // namespace
}  // namespace mccl::cuda
