// Tests the arithmetic of the GPU kernels, run on the host, against the host's kernels.
#include "kernels/cuda/arithmetic.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/cuda/image.h"
#include "kernels/reference.h"

namespace mccl::kernels::cuda {
namespace {

/// Compares every value of a 16-bit type, the midpoints between neighbours, and values beside
/// those.
template <typename T>
void compare(float (*widen)(std::uint16_t), std::uint16_t (*narrow)(float)) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float value = widen(half);
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(T::widen(half))) << bits;
      ASSERT_TRUE(std::isnan(widen(T::narrow(value)))) << bits;
      continue;
    }
    ASSERT_EQ(bits_of(T::widen(half)), bits_of(value)) << bits;
    ASSERT_EQ(T::narrow(value), half) << bits;
    const float next = widen(static_cast<std::uint16_t>(bits + 1));
    if (std::isnan(next) || std::isinf(next)) continue;
    const float middle = value + (next - value) / 2;
    for (const float between :
         {middle, std::nextafter(middle, value), std::nextafter(middle, next)})
      ASSERT_EQ(T::narrow(between), narrow(between)) << bits << " " << between;
  }
  for (const float large : {65519.0F, 65520.0F, 1e38F, std::numeric_limits<float>::max(), -1e38F,
                            std::numeric_limits<float>::denorm_min(), 3e-8F, -2.9e-8F}) {
    ASSERT_EQ(T::narrow(large), narrow(large)) << large;
  }
}

TEST(CudaArithmetic, Bf16MatchesTheHost) {
  compare<Bf16>([](std::uint16_t bits) { return reference::widen_bf16(bits); },
                [](float value) { return reference::narrow_bf16(value); });
}

TEST(CudaArithmetic, F16MatchesTheHost) {
  compare<F16>([](std::uint16_t bits) { return reference::widen_f16(bits); },
               [](float value) { return reference::narrow_f16(value); });
}

TEST(CudaArithmetic, ASumIsRoundedOnce) {
  // In bf16, 256 + 1 + 1 is 258 only if the sum is rounded once at the end.
  const std::uint16_t large[8] = {Bf16::narrow(256)};
  const std::uint16_t one[8] = {Bf16::narrow(1)};
  Wide<Bf16> sum;
  set(sum, large);
  add(sum, one);
  add(sum, one);
  std::uint16_t result[8];
  round_to(result, sum, 1.0F);
  EXPECT_EQ(Bf16::widen(result[0]), 258);
  round_to(result, sum, 2.0F);
  EXPECT_EQ(Bf16::widen(result[0]), 129);
}

/// The product with an inverse must have the bits of the quotient, also for subnormal quotients.
TEST(CudaArithmetic, AMeanIsTheQuotientForEveryNumberOfRanks) {
  for (const float divisor : {1.0F, 2.0F, 3.0F, 4.0F, 5.0F, 6.0F, 7.0F, 8.0F}) {
    for (const float value : {0.0F, -1.0F, 3.4e38F, 1.1754944e-38F, 1.4e-45F, 7.1e-44F, 1.0e-3F}) {
      const Bits32 bits[4] = {bits_of(value)};
      Wide<F32> sum;
      set(sum, bits);
      Bits32 result[4];
      round_to<F32>(result, sum, divisor);
      EXPECT_EQ(result[0], bits_of(value / divisor)) << value << " / " << divisor;
    }
  }
}

}  // namespace
}  // namespace mccl::kernels::cuda
