// Tests the kernels for Mac GPUs against the reference, bit for bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "kernels/metal/reduce_on_host.h"
#include "kernels/metal/source.h"
#include "kernels/reference.h"
#include "kernels/samples.h"

namespace mccl::kernels::metal {
namespace {

constexpr ReduceKind kKinds[] = {ReduceKind::sum, ReduceKind::avg,        ReduceKind::product,
                                 ReduceKind::min, ReduceKind::premul_sum, ReduceKind::max};

class MetalReduce : public ::testing::TestWithParam<std::tuple<DType, ReduceKind>> {
 protected:
  /// Reduces `a` and `b` with the kernel and the reference, and compares the results.
  void compare(const std::vector<std::uint16_t>& a, const std::vector<std::uint16_t>& b) {
    const auto [dtype, kind] = GetParam();
    std::vector<std::uint16_t> found(a.size());
    std::vector<std::uint16_t> expected(a.size());
    mccl::testing::run_on_host(kernel_for(dtype, kind), a.data(), b.data(), found.data(),
                               static_cast<std::uint32_t>(a.size()));
    reference::reduce(dtype, kind == ReduceKind::premul_sum ? ReduceKind::sum : kind, a.data(),
                      b.data(), expected.data(), a.size());
    for (std::size_t i = 0; i < a.size(); ++i) {
      ASSERT_EQ(found[i], expected[i]) << std::hex << a[i] << " and " << b[i];
    }
  }
};

TEST_P(MetalReduce, EveryValueWithOthersMatchesTheReference) {
  std::vector<std::uint16_t> all(0x10000);
  for (std::uint32_t bits = 0; bits < all.size(); ++bits)
    all[bits] = static_cast<std::uint16_t>(bits);
  std::vector<std::uint16_t> others;
  // Zeros, ones, smallest and largest values, infinities, NaNs, and some arbitrary values.
  for (const int bits : {0x0000, 0x8000, 0x3c00, 0x3f80, 0x0001, 0x8001, 0x7bff, 0x7f7f, 0x7c00,
                         0xfc00, 0x7f80, 0xff80, 0x7e01, 0xffc1, 0x4e3a, 0xb6c5}) {
    others.assign(all.size(), static_cast<std::uint16_t>(bits));
    compare(all, others);
    compare(others, all);
  }
  for (std::size_t i = 0; i < all.size(); ++i)
    others[i] = static_cast<std::uint16_t>(all[i] * 40503U + 12345U);
  compare(all, others);
}

TEST_P(MetalReduce, NothingBeyondTheCountIsTouched) {
  const auto [dtype, kind] = GetParam();
  std::vector<std::uint16_t> a(8, 0x3c00);
  mccl::testing::run_on_host(kernel_for(dtype, kind), a.data(), a.data(), a.data(), 0);
  EXPECT_THAT(a, ::testing::Each(0x3c00));
}

INSTANTIATE_TEST_SUITE_P(Kinds, MetalReduce,
                         ::testing::Combine(::testing::Values(DType::f16, DType::bf16),
                                            ::testing::ValuesIn(kKinds)));

TEST(MetalKernels, ExistOnlyFor16BitFloats) {
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(kernel_for(dtype, ReduceKind::sum).empty(),
              dtype != DType::f16 && dtype != DType::bf16);
  }
  EXPECT_EQ(kernel_for(DType::f16, ReduceKind::band), "");
}

TEST(MetalKernels, TheSourceIncludesNoOtherFile) {
  const std::string text(source());
  EXPECT_THAT(text, ::testing::Not(::testing::HasSubstr("#include \"")));
  EXPECT_THAT(text, ::testing::HasSubstr("#include <metal_stdlib>"));
  for (const ReduceKind kind : kKinds) {
    for (const DType dtype : {DType::f16, DType::bf16})
      EXPECT_THAT(text, ::testing::HasSubstr("MCCL_REDUCE(" + kernel_for(dtype, kind) + ","));
  }
}

}  // namespace
}  // namespace mccl::kernels::metal
