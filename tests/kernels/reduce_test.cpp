// Tests every vector kernel against the scalar reference, bit for bit, on every instruction set.
#include "kernels/reduce.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/instruction_set.h"
#include "kernels/reference.h"
#include "kernels/samples.h"
#include "mccl/error.h"

namespace mccl::kernels {
namespace {

std::vector<DType> dtypes_with(ReduceKind kind) {
  std::vector<DType> dtypes;
  for (int i = 0; i < kDTypeCount; ++i) {
    if (supports(static_cast<DType>(i), kind)) dtypes.push_back(static_cast<DType>(i));
  }
  return dtypes;
}

std::vector<ReduceKind> kinds_of(DType dtype) {
  std::vector<ReduceKind> kinds;
  for (int i = 0; i < kReduceKindCount; ++i) {
    if (supports(dtype, static_cast<ReduceKind>(i))) kinds.push_back(static_cast<ReduceKind>(i));
  }
  return kinds;
}

/// Returns every length below `every_below`, which exceeds an unrolled round of the widest vectors.
/// Adds some longer lengths and one large length.
std::vector<std::size_t> lengths(Samples& samples, std::size_t every_below, std::size_t large) {
  std::vector<std::size_t> all;
  for (std::size_t n = 0; n < every_below; ++n) all.push_back(n);
  for (int i = 0; i < 12; ++i) all.push_back(every_below + samples.below(1000));
  all.push_back(large + samples.below(100));
  return all;
}

using Parameters = std::tuple<std::string_view, DType>;

class Kernels : public ::testing::TestWithParam<Parameters> {
 protected:
  Kernels() { use_instruction_set(std::get<0>(GetParam())); }
  ~Kernels() override { use_instruction_set(""); }

  DType dtype() const { return std::get<1>(GetParam()); }
  Array sample(std::size_t n) { return samples_.array(dtype(), n, samples_.below(17)); }

  Samples samples_{12345};
};
class KernelsThatDivide : public Kernels {};
class KernelsThatScale : public Kernels {};

TEST_P(Kernels, ReduceMatchesTheReference) {
  for (const ReduceKind kind : kinds_of(dtype())) {
    for (const std::size_t n : lengths(samples_, 140, 20000)) {
      const Array a = sample(n);
      const Array b = sample(n);
      Array expected(a.size(), 0);
      reference::reduce(dtype(), kind, a.data(), b.data(), expected.data(), n);
      Array apart(a.size(), samples_.below(17));
      reduce(dtype(), kind, a.data(), b.data(), apart.data(), n);
      ASSERT_EQ(apart, expected) << name_of(kind) << " of " << n;
      Array onto_a = a;
      reduce(dtype(), kind, onto_a.data(), b.data(), onto_a.data(), n);
      ASSERT_EQ(onto_a, expected) << name_of(kind) << " of " << n << " onto a";
      Array onto_b = b;
      reduce(dtype(), kind, a.data(), onto_b.data(), onto_b.data(), n);
      ASSERT_EQ(onto_b, expected) << name_of(kind) << " of " << n << " onto b";
    }
  }
}

TEST_P(Kernels, OrderOfTheTwoOperandsDoesNotMatter) {
  const std::size_t n = 3000;
  for (const ReduceKind kind : kinds_of(dtype())) {
    const Array a = sample(n);
    const Array b = sample(n);
    Array forward(a.size(), 0);
    Array backward(a.size(), 5);
    reduce(dtype(), kind, a.data(), b.data(), forward.data(), n);
    reduce(dtype(), kind, b.data(), a.data(), backward.data(), n);
    EXPECT_EQ(forward, backward) << name_of(kind);
  }
}

TEST_P(Kernels, FoldMatchesTheReference) {
  for (const ReduceKind kind : kinds_of(dtype())) {
    for (const std::size_t n : lengths(samples_, 40, 3000)) {
      std::vector<Array> arrays;
      for (std::size_t left = 1 + samples_.below(9); left > 0; --left) arrays.push_back(sample(n));
      std::vector<const void*> operands;
      for (const Array& array : arrays) operands.push_back(array.data());
      Array expected(arrays[0].size(), 0);
      reference::fold(dtype(), kind, operands, expected.data(), n);
      Array apart(expected.size(), samples_.below(17));
      fold(dtype(), kind, operands, apart.data(), n);
      ASSERT_EQ(apart, expected) << name_of(kind) << " " << operands.size() << " x " << n;
      Array& target = arrays[samples_.below(arrays.size())];
      fold(dtype(), kind, operands, target.data(), n);
      ASSERT_EQ(target, expected) << name_of(kind) << " " << operands.size() << " x " << n
                                  << " onto an operand";
    }
  }
}

TEST_P(KernelsThatDivide, DivideMatchesTheReference) {
  for (const int divisor : {1, 2, 3, 7, 200, 255, 40000, 2147483647}) {
    for (const std::size_t n : lengths(samples_, 40, 3000)) {
      const Array data = sample(n);
      Array expected = data;
      Array actual(data, samples_.below(17));
      // Dividing by one leaves the bits unchanged, even of NaNs.
      if (divisor != 1) reference::divide(dtype(), expected.data(), n, divisor);
      divide(dtype(), actual.data(), n, divisor);
      ASSERT_EQ(actual, expected) << n << " by " << divisor;
    }
  }
}

TEST_P(KernelsThatScale, ScaleMatchesTheReference) {
  for (const double factor : {1.0, 0.0, -0.5, 0.1, 3.0e-5, 70000.0, 1e300}) {
    for (const std::size_t n : lengths(samples_, 40, 3000)) {
      const Array src = sample(n);
      Array expected(src.size(), 0);
      reference::scale(dtype(), src.data(), expected.data(), n, factor);
      Array apart(src.size(), samples_.below(17));
      scale(dtype(), src.data(), apart.data(), n, factor);
      ASSERT_EQ(apart, expected) << n << " times " << factor;
      Array in_place(src, samples_.below(17));
      scale(dtype(), in_place.data(), in_place.data(), n, factor);
      ASSERT_EQ(in_place, expected) << n << " times " << factor << " in place";
    }
  }
}

auto on_every_set(ReduceKind supported) {
  return ::testing::Combine(::testing::ValuesIn(instruction_sets()),
                            ::testing::ValuesIn(dtypes_with(supported)));
}

std::string name_of_case(const ::testing::TestParamInfo<Parameters>& info) {
  return std::string(std::get<0>(info.param)) + "_" + std::string(name_of(std::get<1>(info.param)));
}

INSTANTIATE_TEST_SUITE_P(EverySet, Kernels, on_every_set(ReduceKind::sum), name_of_case);
INSTANTIATE_TEST_SUITE_P(EverySet, KernelsThatDivide, on_every_set(ReduceKind::avg), name_of_case);
INSTANTIATE_TEST_SUITE_P(EverySet, KernelsThatScale, on_every_set(ReduceKind::premul_sum),
                         name_of_case);

TEST(InstructionSet, UsesTheRequestedSet) {
  for (const std::string_view name : instruction_sets()) {
    use_instruction_set(name);
    EXPECT_EQ(instruction_set(), name);
    use_instruction_set("");
  }
  EXPECT_EQ(instruction_set(), instruction_sets().front());
}

TEST(InstructionSet, RefusesAnUnsupportedSet) {
  EXPECT_THROW(use_instruction_set("abacus"), InvalidArgument);
  EXPECT_EQ(instruction_set(), instruction_sets().front());
}

}  // namespace
}  // namespace mccl::kernels
