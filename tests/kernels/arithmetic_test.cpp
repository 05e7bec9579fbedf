// Tests reductions, and the number formats of the reference, with examples computed by hand.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "kernels/instruction_set.h"
#include "kernels/reduce.h"
#include "kernels/reference.h"

namespace mccl::kernels {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(Formats, F16KnownValues) {
  using namespace reference;
  EXPECT_EQ(narrow_f16(1.0f), 0x3C00);
  EXPECT_EQ(narrow_f16(-2.0f), 0xC000);
  EXPECT_EQ(narrow_f16(-0.0f), 0x8000);
  EXPECT_EQ(narrow_f16(65504.0f), 0x7BFF);
  EXPECT_EQ(narrow_f16(65519.996f), 0x7BFF);
  EXPECT_EQ(narrow_f16(65520.0f), 0x7C00);  // halfway to 2^16: rounds to even, which is infinity
  EXPECT_EQ(narrow_f16(-1e10f), 0xFC00);
  EXPECT_EQ(narrow_f16(kInf), 0x7C00);
  EXPECT_EQ(narrow_f16(kNan), 0x7E00);
  EXPECT_EQ(narrow_f16(-kNan), 0x7E00);
  EXPECT_EQ(narrow_f16(std::ldexp(1.0f, -14)), 0x0400);
  EXPECT_EQ(narrow_f16(std::ldexp(1.0f, -24)), 0x0001);
  EXPECT_EQ(narrow_f16(std::ldexp(1.0f, -25)), 0x0000);  // halfway: rounds to even
  EXPECT_EQ(narrow_f16(std::ldexp(1.001f, -25)), 0x0001);
  EXPECT_EQ(narrow_f16(std::ldexp(3.0f, -25)), 0x0002);
  EXPECT_EQ(narrow_f16(std::ldexp(2047.5f, -25)), 0x0400);  // carries into the normal numbers
  EXPECT_EQ(narrow_f16(2049.0f), 0x6800);
  EXPECT_EQ(narrow_f16(2051.0f), 0x6802);
  EXPECT_EQ(narrow_f16(std::numeric_limits<float>::denorm_min()), 0x0000);
}

TEST(Formats, Bf16KnownValues) {
  using namespace reference;
  EXPECT_EQ(narrow_bf16(1.0f), 0x3F80);
  EXPECT_EQ(narrow_bf16(1.0f + std::ldexp(1.0f, -8)), 0x3F80);
  EXPECT_EQ(narrow_bf16(1.0f + std::ldexp(3.0f, -8)), 0x3F82);
  EXPECT_EQ(narrow_bf16(std::numeric_limits<float>::max()), 0x7F80);
  EXPECT_EQ(narrow_bf16(-kInf), 0xFF80);
  EXPECT_EQ(narrow_bf16(kNan), 0x7FC0);
  EXPECT_EQ(narrow_bf16(std::ldexp(1.0f, -133)), 0x0001);
  EXPECT_EQ(narrow_bf16(std::ldexp(1.0f, -134)), 0x0000);
  EXPECT_EQ(narrow_bf16(-std::numeric_limits<float>::denorm_min()), 0x8000);
}

TEST(Formats, EveryPatternSurvivesWideningAndNarrowing) {
  for (std::uint32_t pattern = 0; pattern < 0x10000; ++pattern) {
    const auto bits = static_cast<std::uint16_t>(pattern);
    const bool f16_nan = (bits & 0x7FFF) > 0x7C00;
    const bool bf16_nan = (bits & 0x7FFF) > 0x7F80;
    ASSERT_EQ(reference::narrow_f16(reference::widen_f16(bits)), f16_nan ? 0x7E00 : bits);
    ASSERT_EQ(reference::narrow_bf16(reference::widen_bf16(bits)), bf16_nan ? 0x7FC0 : bits);
  }
}

class Arithmetic : public ::testing::TestWithParam<std::string_view> {
 protected:
  Arithmetic() { use_instruction_set(GetParam()); }
  ~Arithmetic() override { use_instruction_set(""); }

  template <class T>
  static T reduced(DType dtype, ReduceKind kind, T a, T b) {
    T result;
    reduce(dtype, kind, &a, &b, &result, 1);
    return result;
  }

  template <class T>
  static T folded(DType dtype, ReduceKind kind, const std::vector<T>& values) {
    std::vector<const void*> operands;
    for (const T& value : values) operands.push_back(&value);
    T result;
    fold(dtype, kind, operands, &result, 1);
    return result;
  }
};

TEST_P(Arithmetic, EveryHalfPassesThroughUnchanged) {
  std::vector<std::uint16_t> patterns(0x10000);
  for (std::size_t i = 0; i < patterns.size(); ++i) patterns[i] = static_cast<std::uint16_t>(i);
  std::vector<std::uint16_t> result(patterns.size());
  scale(DType::f16, patterns.data(), result.data(), patterns.size(), 1.0);
  for (const std::uint16_t bits : patterns) {
    ASSERT_EQ(result[bits], (bits & 0x7FFF) > 0x7C00 ? 0x7E00 : bits);
  }
  scale(DType::bf16, patterns.data(), result.data(), patterns.size(), 1.0);
  for (const std::uint16_t bits : patterns) {
    ASSERT_EQ(result[bits], (bits & 0x7FFF) > 0x7F80 ? 0x7FC0 : bits);
  }
}

TEST_P(Arithmetic, ProductsOfHalvesRoundAsTheReference) {
  std::vector<std::uint16_t> patterns(0x10000);
  for (std::size_t i = 0; i < patterns.size(); ++i) patterns[i] = static_cast<std::uint16_t>(i);
  std::vector<std::uint16_t> factors(patterns.size());
  std::vector<std::uint16_t> result(patterns.size());
  std::vector<std::uint16_t> expected(patterns.size());
  for (const DType dtype : {DType::f16, DType::bf16}) {
    for (const std::uint16_t factor : {0x3C01, 0x3555, 0x0001, 0x1401, 0x3EFF, 0x7001, 0xBFFF}) {
      factors.assign(factors.size(), factor);
      reduce(dtype, ReduceKind::product, patterns.data(), factors.data(), result.data(),
             result.size());
      reference::reduce(dtype, ReduceKind::product, patterns.data(), factors.data(),
                        expected.data(), expected.size());
      ASSERT_EQ(result, expected) << name_of(dtype) << " " << factor;
    }
  }
}

TEST_P(Arithmetic, FoldOfHalvesRoundsOnce) {
  // In f16, numbers from 2048 on are two apart. Added one at a time, each 1 would be lost.
  const std::uint16_t big = 0x6800, one = 0x3C00;
  EXPECT_EQ(folded<std::uint16_t>(DType::f16, ReduceKind::sum, {big, one, one}), 0x6801);
  EXPECT_EQ(reduced<std::uint16_t>(DType::f16, ReduceKind::sum, big, one), big);
  // The sum 65504 + 65504 overflows f16, but half of it does not.
  EXPECT_EQ(folded<std::uint16_t>(DType::f16, ReduceKind::avg, {0x7BFF, 0x7BFF}), 0x7BFF);
  EXPECT_EQ(folded<std::uint16_t>(DType::f16, ReduceKind::sum, {0x7BFF, 0x7BFF}), 0x7C00);
  // The sum 256 + 1 + 1 in bf16.
  EXPECT_EQ(folded<std::uint16_t>(DType::bf16, ReduceKind::sum, {0x4380, 0x3F80, 0x3F80}), 0x4381);
}

TEST_P(Arithmetic, MinAndMaxPropagateNan) {
  for (const ReduceKind kind : {ReduceKind::min, ReduceKind::max}) {
    for (const float other : {0.0f, 1.0f, -kInf, kInf, kNan}) {
      EXPECT_TRUE(std::isnan(reduced(DType::f32, kind, kNan, other)));
      EXPECT_TRUE(std::isnan(reduced(DType::f32, kind, other, kNan)));
    }
  }
  EXPECT_EQ(reduced(DType::f32, ReduceKind::min, -kInf, kInf), -kInf);
  EXPECT_EQ(reduced(DType::f32, ReduceKind::max, -kInf, kInf), kInf);
}

TEST_P(Arithmetic, MinAndMaxOrderTheZeros) {
  for (const auto& [a, b] : {std::pair{0.0, -0.0}, std::pair{-0.0, 0.0}}) {
    EXPECT_TRUE(std::signbit(reduced(DType::f64, ReduceKind::min, a, b)));
    EXPECT_FALSE(std::signbit(reduced(DType::f64, ReduceKind::max, a, b)));
  }
}

TEST_P(Arithmetic, BoolTakesAnyNonzeroByteAsTrue) {
  const auto check = [](ReduceKind kind, int ff, int ft, int tt) {
    const auto of = [&](std::uint8_t a, std::uint8_t b) {
      return int{reduced<std::uint8_t>(DType::boolean, kind, a, b)};
    };
    EXPECT_EQ(of(0, 0), ff) << name_of(kind);
    EXPECT_EQ(of(0, 255), ft) << name_of(kind);
    EXPECT_EQ(of(4, 0), ft) << name_of(kind);
    EXPECT_EQ(of(2, 128), tt) << name_of(kind);
    EXPECT_EQ(of(1, 1), tt) << name_of(kind);
  };
  for (const auto kind : {ReduceKind::sum, ReduceKind::max, ReduceKind::bor}) check(kind, 0, 1, 1);
  for (const auto kind : {ReduceKind::product, ReduceKind::min, ReduceKind::band}) {
    check(kind, 0, 0, 1);
  }
  check(ReduceKind::bxor, 0, 1, 0);
}

TEST_P(Arithmetic, IntegersWrap) {
  EXPECT_EQ(reduced<std::int8_t>(DType::i8, ReduceKind::sum, 127, 1), -128);
  EXPECT_EQ(reduced<std::int8_t>(DType::i8, ReduceKind::product, -128, -1), -128);
  EXPECT_EQ(reduced<std::uint8_t>(DType::u8, ReduceKind::product, 17, 16), 16);
  EXPECT_EQ(reduced<std::int32_t>(DType::i32, ReduceKind::product, 65536, 65536), 0);
  EXPECT_EQ(reduced<std::int64_t>(DType::i64, ReduceKind::sum, INT64_MAX, 1), INT64_MIN);
  EXPECT_EQ(reduced<std::int64_t>(DType::i64, ReduceKind::product, 3037000500, 3037000500),
            -9223372036709301616);
}

TEST_P(Arithmetic, IntegerAverageTruncatesTowardZero) {
  EXPECT_EQ(folded<std::int32_t>(DType::i32, ReduceKind::avg, {-3, -4}), -3);
  EXPECT_EQ(folded<std::int8_t>(DType::i8, ReduceKind::avg, {-1, 0, -1}), 0);
  EXPECT_EQ(folded<std::uint64_t>(DType::u64, ReduceKind::avg, {UINT64_MAX - 1, 0, 1}),
            UINT64_MAX / 3);
  std::uint64_t large = 0xFFFFFFFFFFFFFFFF;
  divide(DType::u64, &large, 1, 3);
  EXPECT_EQ(large, 0x5555555555555555u);
  std::int8_t small = -100;
  divide(DType::i8, &small, 1, 200);
  EXPECT_EQ(small, 0);
}

TEST_P(Arithmetic, ComplexNumbersMultiply) {
  using Number = std::array<float, 2>;
  const Number product = reduced<Number>(DType::c64, ReduceKind::product, {1, 2}, {3, 4});
  EXPECT_EQ(product, (Number{-5, 10}));
  const Number average = folded<Number>(DType::c64, ReduceKind::avg, {{1, 2}, {3, 8}});
  EXPECT_EQ(average, (Number{2, 5}));
}

TEST_P(Arithmetic, NothingToDo) {
  reduce(DType::f32, ReduceKind::sum, nullptr, nullptr, nullptr, 0);
  divide(DType::i32, nullptr, 0, 3);
  scale(DType::f16, nullptr, nullptr, 0, 2.0);
  float untouched = 7;
  fold(DType::f32, ReduceKind::avg, {}, &untouched, 1);
  EXPECT_EQ(untouched, 7);
}

INSTANTIATE_TEST_SUITE_P(EverySet, Arithmetic, ::testing::ValuesIn(instruction_sets()),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace mccl::kernels
