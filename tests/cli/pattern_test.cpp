// Compares the patterns for results with the reference arithmetic, applied to the ranks in several
// orders.
#include "cli/bench/pattern.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "kernels/reference.h"

namespace mccl::cli::bench {
namespace {

constexpr std::size_t kCount = kPeriod + 100;

std::vector<std::byte> data_of(const Pattern& pattern, DType dtype) {
  std::vector<std::byte> data(kCount * size_of(dtype));
  pattern.fill(data);
  return data;
}

/// Returns the reduction of all ranks' contributions in the given order.
std::vector<std::byte> reduced(DType dtype, ReduceKind kind, const std::vector<int>& order) {
  const int ranks = static_cast<int>(order.size());
  const auto given = [&](int rank) {
    std::vector<std::byte> data = data_of(contribution(dtype, kind, rank, ranks), dtype);
    if (kind == ReduceKind::premul_sum)
      kernels::reference::scale(dtype, data.data(), data.data(), kCount, kPremulFactor);
    return data;
  };
  const bool sums = kind == ReduceKind::avg || kind == ReduceKind::premul_sum;
  std::vector<std::byte> result = given(order.front());
  for (std::size_t i = 1; i < order.size(); ++i) {
    const std::vector<std::byte> next = given(order[i]);
    kernels::reference::reduce(dtype, sums ? ReduceKind::sum : kind, result.data(), next.data(),
                               result.data(), kCount);
  }
  if (kind == ReduceKind::avg) kernels::reference::divide(dtype, result.data(), kCount, ranks);
  return result;
}

/// Expects the pattern of the result to equal the reduction in rank order and in a shuffled order.
void expect_exact(DType dtype, ReduceKind kind, int ranks) {
  const Pattern expected = reduction(dtype, kind, ranks);
  std::vector<int> forwards(static_cast<std::size_t>(ranks));
  std::iota(forwards.begin(), forwards.end(), 0);
  std::vector<int> shuffled = forwards;
  std::ranges::shuffle(shuffled, std::mt19937(7));
  for (const auto& order : {forwards, shuffled}) {
    EXPECT_EQ(expected.count_wrong(reduced(dtype, kind, order)), 0U)
        << name_of(dtype) << " " << name_of(kind) << " of " << ranks;
  }
}

class EveryReduction : public ::testing::TestWithParam<int> {};

TEST_P(EveryReduction, IsExactInAnyOrder) {
  for (int t = 0; t < kDTypeCount; ++t) {
    for (int k = 0; k < kReduceKindCount; ++k) {
      const auto dtype = static_cast<DType>(t);
      const auto kind = static_cast<ReduceKind>(k);
      if (supports(dtype, kind)) expect_exact(dtype, kind, GetParam());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, EveryReduction, ::testing::Values(1, 2, 3, 4, 7, 16));

TEST(Reduction, IsExactIfTheTypeCannotCountTheRanks) {
  for (const DType dtype : {DType::i8, DType::u8, DType::bf16, DType::f16})
    for (const ReduceKind kind : {ReduceKind::sum, ReduceKind::avg}) expect_exact(dtype, kind, 300);
}

TEST(Reduction, DiffersFromEveryContribution) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::i8}) {
    const Pattern expected = reduction(dtype, ReduceKind::sum, 3);
    for (int rank = 0; rank < 3; ++rank) {
      const auto given = data_of(contribution(dtype, ReduceKind::sum, rank, 3), dtype);
      EXPECT_GT(expected.count_wrong(given), kCount / 2) << name_of(dtype) << " " << rank;
    }
  }
}

/// Without the limit, the largest sum would be infinite in fp16.
TEST(Reduction, StaysWithinTheRangeOfEveryCodec) {
  for (const ReduceKind kind : {ReduceKind::sum, ReduceKind::avg}) {
    for (const int ranks : {2, 8}) {
      const auto bytes = data_of(reduction(DType::f32, kind, ranks, kMostRounded), DType::f32);
      std::vector<float> sums(kCount);
      std::memcpy(sums.data(), bytes.data(), bytes.size());
      EXPECT_LE(*std::ranges::max_element(sums), 65504.0F) << name_of(kind) << " of " << ranks;
      EXPECT_GT(*std::ranges::max_element(sums), 256.0F);
    }
  }
}

TEST(Pattern, ContinuesFromAnyElement) {
  const Pattern pattern = message(DType::i16, 5);
  std::vector<std::byte> whole(2 * 3 * kPeriod);
  pattern.fill(whole);
  std::vector<std::byte> rest(whole.size() - 2 * 1000);
  pattern.fill(rest, 1000);
  EXPECT_TRUE(std::equal(rest.begin(), rest.end(), whole.begin() + 2 * 1000));
  EXPECT_EQ(pattern.count_wrong(rest, 1000), 0U);
  EXPECT_GT(pattern.count_wrong(rest, 1001), 0U);
}

TEST(Pattern, CountsEachWrongElementOnce) {
  const Pattern pattern = message(DType::f32, 1);
  std::vector<std::byte> data(4 * kCount);
  pattern.fill(data);
  for (const std::size_t element : {std::size_t{0}, std::size_t{17}, kPeriod, kCount - 1}) {
    data[4 * element] ^= std::byte{1};
    data[4 * element + 3] ^= std::byte{1};
  }
  EXPECT_EQ(pattern.count_wrong(data), 4U);
}

TEST(Pattern, DetectsDataAtAWrongOffset) {
  const Pattern pattern = message(DType::u8, 1);
  std::vector<std::byte> data(1 << 20);
  pattern.fill(data);
  std::rotate(data.begin(), data.begin() + 65536, data.end());
  EXPECT_GT(pattern.count_wrong(data), data.size() / 2);
}

TEST(Pattern, TheLargestErrorIsThatOfTheWorstElement) {
  const Pattern pattern = reduction(DType::f32, ReduceKind::sum, 2);
  std::vector<float> data(kCount);
  const auto bytes = std::as_writable_bytes(std::span(data));
  pattern.fill(bytes, 100);
  EXPECT_EQ(pattern.largest_error(DType::f32, bytes, 100), 0);
  const float largest = *std::ranges::max_element(data);
  data[17] += 0.5F * largest;
  data[18] -= 0.25F * largest;
  EXPECT_NEAR(pattern.largest_error(DType::f32, bytes, 100), 0.5, 1e-6);
  data[4000] = std::nanf("");
  EXPECT_TRUE(std::isnan(pattern.largest_error(DType::f32, bytes, 100)));
}

TEST(Pattern, SourcesDiffer) {
  std::vector<std::byte> data(4 * kCount);
  message(DType::f32, 1).fill(data);
  EXPECT_GT(message(DType::f32, 2).count_wrong(data), kCount / 2);
}

}  // namespace
}  // namespace mccl::cli::bench
