// Tests compressed sums of more elements than a signed 32-bit count holds.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "../kernels/codec/reference.h"
#include "base/coding.h"
#include "kernels/reference.h"
#include "support/ranks.h"

namespace mccl {
namespace {

constexpr std::size_t kCount = (std::size_t{1} << 31) + 8;
constexpr std::size_t kBlock = 128;
/// The input repeats after this many elements. The number of blocks is prime, so an offset that is
/// wrong by a power of two yields different values.
constexpr std::size_t kPeriod = 8191 * kBlock;

std::size_t available_bytes() {
  std::ifstream memory("/proc/meminfo");
  std::string name;
  std::size_t kib = 0;
  while (memory >> name) {
    if (name == "MemAvailable:" && memory >> kib) return kib * 1024;
  }
  return 0;
}

std::vector<float> one_period(int rank) {
  std::mt19937 random(static_cast<unsigned>(rank) + 1);
  std::normal_distribution<float> normal;
  std::vector<float> values(kPeriod);
  for (float& x : values)
    x = kernels::reference::widen_bf16(kernels::reference::narrow_bf16(normal(random)));
  return values;
}

std::vector<std::uint16_t> narrowed(const std::vector<float>& values) {
  std::vector<std::uint16_t> bits(values.size());
  std::ranges::transform(values, bits.begin(), kernels::reference::narrow_bf16);
  return bits;
}

/// Calls `at(place, count)` for each repetition, of which the last is shorter.
template <typename At>
void for_each_period(At&& at) {
  for (std::size_t place = 0; place < kCount; place += kPeriod) {
    at(place, std::min(kPeriod, kCount - place));
  }
}

TEST(CompressionBeyond32Bits, EveryElementIsTheSumThatTheCodecDefines) {
  constexpr std::size_t kNeeded = 2 * kCount * sizeof(std::uint16_t) + (std::size_t{3} << 30);
  if (available_bytes() < kNeeded) GTEST_SKIP() << "needs " << (kNeeded >> 30) << " GiB of memory";
  const std::vector<std::vector<float>> given = {one_period(0), one_period(1)};
  const Coding coding = coding_of({Codec::int8}, 2);
  ASSERT_EQ(coding.block(), kBlock);
  const auto expected = narrowed(kernels::reference::sum_in(coding, given, 1));
  // The last block has only eight elements.
  constexpr std::size_t kLast = kCount % kBlock, kPlace = (kCount - kLast) % kPeriod;
  std::vector<std::vector<float>> of_last;
  for (const auto& values : given) {
    of_last.emplace_back(values.begin() + kPlace, values.begin() + kPlace + kLast);
  }
  const auto expected_last = narrowed(kernels::reference::sum_in(coding, of_last, 1));

  testing::run_ranks(
      2,
      [&](Context& context) {
        const auto bits = narrowed(given[static_cast<std::size_t>(context.rank())]);
        const std::unique_ptr<std::uint16_t[]> data(new std::uint16_t[kCount]);
        for_each_period([&](std::size_t place, std::size_t count) {
          std::memcpy(&data[place], bits.data(), count * sizeof bits[0]);
        });
        const Buffer all{data.get(), kCount, DType::bf16};
        context.world()->all_reduce(all, all, ReduceKind::sum).wait();
        EXPECT_TRUE(std::equal(expected_last.begin(), expected_last.end(), &data[kCount - kLast]));
        std::copy_n(&expected[kPlace], kLast, &data[kCount - kLast]);
        for_each_period([&](std::size_t place, std::size_t count) {
          EXPECT_EQ(std::memcmp(&data[place], expected.data(), count * sizeof expected[0]), 0)
              << "rank " << context.rank() << ", somewhere from element " << place;
        });
      },
      [](int) {
        Config config = testing::test_config();
        config.transport = "tcp";
        config.compression = "int8";
        config.calibrate = false;
        config.timeout = 600;
        return config;
      });
}

}  // namespace
}  // namespace mccl
