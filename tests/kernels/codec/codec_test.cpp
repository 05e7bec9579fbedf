#include "kernels/codec/codec.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "kernels/codec/reference.h"
#include "kernels/instruction_set.h"

namespace mccl::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<Coding> codings() {
  std::vector<Coding> found;
  for (int i = 1; i < kCodecCount; ++i) {
    for (const double ratio : {0.01, 0.3, 1.0}) {
      found.push_back(coding_of({static_cast<Codec>(i), ratio}, 3));
      if (found.back().codec != Codec::topk) break;
    }
  }
  return found;
}

std::vector<std::uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<std::uint32_t> bits;
  for (const float x : values) bits.push_back(std::bit_cast<std::uint32_t>(x));
  return bits;
}

/// Returns values of many magnitudes, with long runs of zeros.
std::vector<float> random_values(std::size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::uniform_int_distribution<int> exponent(-40, 20);
  std::vector<float> values(n);
  for (std::size_t i = 0; i < n; ++i) {
    const bool zero = i / 1000 % 7 == 3;
    values[i] = zero ? 0.0F : std::ldexp(normal(random), i % 5 == 0 ? exponent(random) : 0);
  }
  return values;
}

std::vector<float> round_trip(const Coding& coding, Coded form, const std::vector<float>& values) {
  std::vector<std::byte> bytes(coding.bytes(values.size(), form));
  encode(coding, form, DType::f32, values.data(), values.size(), bytes.data());
  std::vector<float> found(values.size());
  EXPECT_TRUE(decode(coding, form, DType::f32, bytes.data(), values.size(), found.data()));
  return found;
}

void expect_as_defined(const Coding& coding, const std::vector<float>& values) {
  for (const Coded form : {Coded::contribution, Coded::sum}) {
    EXPECT_EQ(bits_of(round_trip(coding, form, values)),
              bits_of(reference::round_trip(coding, form, values)))
        << describe(coding) << ", " << values.size() << " elements";
  }
}

TEST(Codecs, RoundAsTheyAreDefined) {
  for (const Coding& coding : codings()) {
    for (const std::size_t n : {0, 1, 2, 127, 128, 129, 4095, 4096, 4097, 20'000})
      expect_as_defined(coding, random_values(n, static_cast<unsigned>(n)));
  }
}

TEST(Codecs, AcceptEveryKindOfNumber) {
  const float least = std::numeric_limits<float>::denorm_min();
  for (const Coding& coding : codings()) {
    for (const float odd : {kInfinity, -kInfinity, std::nanf(""), -std::nanf("1"), 0.0F, -0.0F,
                            least, -1e-40F, 3.4e38F, 65520.0F, 1e-38F}) {
      std::vector<float> values = random_values(9000, 7);
      values[5] = odd;
      values[130] = odd;
      values[8999] = odd;
      expect_as_defined(coding, values);
      expect_as_defined(coding, std::vector<float>(300, odd));
    }
    expect_as_defined(coding, std::vector<float>(5000, 1.0F));
    expect_as_defined(coding, std::vector<float>(5000, -2.5F));
  }
}

TEST(Codecs, SumsAreAddedUpInRankOrderAndRoundedOnce) {
  for (const Coding& coding : codings()) {
    for (const std::size_t n : {1, 300, 4100, 9001}) {
      std::vector<std::vector<float>> given;
      std::vector<std::vector<std::byte>> blocks;
      std::vector<const std::byte*> operands;
      for (unsigned rank = 0; rank < 3; ++rank) {
        given.push_back(random_values(n, 10 + rank));
        if (n > 4000) given.back()[rank * 200] = rank == 1 ? kInfinity : -kInfinity;
        blocks.emplace_back(coding.bytes(n, Coded::contribution));
        encode(coding, Coded::contribution, DType::f32, given.back().data(), n,
               blocks.back().data());
        operands.push_back(blocks.back().data());
      }
      for (const int divisor : {1, 3}) {
        std::vector<std::byte> sum(coding.bytes(n, Coded::sum));
        EXPECT_EQ(fold_to_sum(coding, operands, n, divisor, sum.data()), -1);
        std::vector<float> found(n);
        EXPECT_TRUE(decode(coding, Coded::sum, DType::f32, sum.data(), n, found.data()));
        EXPECT_EQ(bits_of(found), bits_of(reference::sum_in(coding, given, divisor)))
            << describe(coding) << ", " << n;
        std::vector<float> plain(n);
        EXPECT_EQ(fold_to_elements(coding, operands, n, divisor, DType::f32, plain.data()), -1);
        EXPECT_EQ(bits_of(reference::round_trip(coding, Coded::sum, plain)), bits_of(found));
      }
    }
  }
}

TEST(Codecs, AcceptEveryFloatType) {
  const std::vector<float> values = random_values(5000, 3);
  for (const Coding& coding : codings()) {
    std::vector<double> wide(values.begin(), values.end());
    std::vector<std::uint16_t> f16;
    std::vector<std::uint16_t> bf16;
    std::vector<float> of_f16;
    std::vector<float> of_bf16;
    for (const float x : values) {
      f16.push_back(reference::narrow_f16(x));
      bf16.push_back(reference::narrow_bf16(x));
      of_f16.push_back(reference::widen_f16(f16.back()));
      of_bf16.push_back(reference::widen_bf16(bf16.back()));
    }
    const auto check = [&](DType dtype, const void* data, const std::vector<float>& same) {
      std::vector<std::byte> bytes(coding.bytes(values.size(), Coded::contribution));
      std::vector<std::byte> expected(bytes.size());
      encode(coding, Coded::contribution, dtype, data, values.size(), bytes.data());
      encode(coding, Coded::contribution, DType::f32, same.data(), same.size(), expected.data());
      EXPECT_EQ(bytes, expected) << describe(coding) << " of " << name_of(dtype);
    };
    check(DType::f64, wide.data(), values);
    check(DType::f16, f16.data(), of_f16);
    check(DType::bf16, bf16.data(), of_bf16);

    std::vector<std::byte> bytes(coding.bytes(values.size(), Coded::sum));
    encode(coding, Coded::sum, DType::f32, values.data(), values.size(), bytes.data());
    const std::vector<float> plain = reference::round_trip(coding, Coded::sum, values);
    std::vector<double> back(values.size());
    std::vector<std::uint16_t> half(values.size());
    EXPECT_TRUE(decode(coding, Coded::sum, DType::f64, bytes.data(), values.size(), back.data()));
    EXPECT_EQ(back, std::vector<double>(plain.begin(), plain.end()));
    EXPECT_TRUE(decode(coding, Coded::sum, DType::f16, bytes.data(), values.size(), half.data()));
    for (std::size_t i = 0; i < half.size(); ++i)
      EXPECT_EQ(half[i], reference::narrow_f16(plain[i])) << describe(coding) << " at " << i;
    EXPECT_TRUE(decode(coding, Coded::sum, DType::bf16, bytes.data(), values.size(), half.data()));
    for (std::size_t i = 0; i < half.size(); ++i)
      EXPECT_EQ(half[i], reference::narrow_bf16(plain[i])) << describe(coding) << " at " << i;
  }
}

TEST(Codecs, AcceptUnalignedMemory) {
  const std::vector<float> values = random_values(700, 5);
  for (const Coding& coding : codings()) {
    std::vector<std::byte> memory(values.size() * sizeof(float) + 1);
    std::memcpy(memory.data() + 1, values.data(), values.size() * sizeof(float));
    std::vector<std::byte> bytes(coding.bytes(values.size(), Coded::sum) + 1);
    encode(coding, Coded::sum, DType::f32, memory.data() + 1, values.size(), bytes.data() + 1);
    EXPECT_TRUE(
        decode(coding, Coded::sum, DType::f32, bytes.data() + 1, values.size(), memory.data() + 1));
    std::vector<float> found(values.size());
    std::memcpy(found.data(), memory.data() + 1, values.size() * sizeof(float));
    EXPECT_EQ(bits_of(found), bits_of(reference::round_trip(coding, Coded::sum, values)));
  }
}

/// Arbitrary bytes are refused or decoded to numbers. Only the destination may be written, which a
/// sanitizer checks.
TEST(Codecs, ArbitraryBytesAreRefusedOrDecodeToNumbers) {
  std::mt19937 random(11);
  for (const Coding& coding : codings()) {
    bool refused = false;
    for (int round = 0; round < 50; ++round) {
      std::vector<std::byte> bytes(coding.bytes(5000, Coded::contribution));
      for (std::byte& each : bytes) each = static_cast<std::byte>(random());
      std::vector<float> found(5000);
      refused |= !decode(coding, Coded::contribution, DType::f32, bytes.data(), 5000, found.data());
      const std::byte* operands[] = {bytes.data(), bytes.data()};
      fold_to_elements(coding, operands, 5000, 2, DType::f32, found.data());
    }
    const bool any_bytes_are_numbers = coding.codec == Codec::fp16 || coding.codec == Codec::bf16;
    EXPECT_EQ(refused, !any_bytes_are_numbers) << describe(coding);
  }
}

TEST(Codecs, TheErrorNamesAnOperandWithoutValidEncoding) {
  const Coding coding = coding_of({Codec::int8, 0}, 3);
  const std::vector<float> values = random_values(400, 1);
  std::vector<std::byte> good(coding.bytes(400, Coded::contribution));
  encode(coding, Coded::contribution, DType::f32, values.data(), 400, good.data());
  std::vector<std::byte> bad = good;
  const float scale = -1;
  std::memcpy(bad.data() + coding.block_bytes(Coded::contribution), &scale, sizeof scale);
  const std::byte* operands[] = {good.data(), bad.data(), good.data()};
  std::vector<float> found(400);
  EXPECT_EQ(fold_to_elements(coding, operands, 400, 1, DType::f32, found.data()), 1);
}

/// A double has more digits than a float. The extra digits stay in the residual and are not lost.
TEST(Codec, TheRoundingErrorOfDoublesIsExact) {
  std::mt19937 random(7);
  std::normal_distribution<double> normal;
  std::vector<double> values(10'003);
  for (double& x : values) x = normal(random);
  for (const Coding& coding : codings()) {
    const std::size_t n = values.size();
    std::vector<std::byte> bytes(coding.bytes(n, Coded::contribution));
    std::vector<double> left(n, 7);
    std::vector<double> sent(n);
    encode(coding, Coded::contribution, DType::f64, values.data(), n, bytes.data(), left.data());
    ASSERT_TRUE(decode(coding, Coded::contribution, DType::f64, bytes.data(), n, sent.data()));
    for (std::size_t i = 0; i < n; ++i) {
      ASSERT_DOUBLE_EQ(sent[i] + left[i], values[i]) << describe(coding) << ", element " << i;
    }
  }
}

}  // namespace
}  // namespace mccl::kernels
