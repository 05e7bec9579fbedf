#include "mccl/types.h"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <string>

namespace mccl {
namespace {

struct DTypeFacts {
  DType dtype;
  std::string_view name;
  std::size_t bytes;
  // One letter per ReduceKind in its order, '-' where it is not supported:
  // Sum, Avg, Product, miN, maX, bAnd (&), bOr (|), bxor (^), preMul.
  std::string_view kinds;
};

constexpr std::string_view kAllKinds = "SAPNX&|^M";
constexpr std::array<DTypeFacts, kDTypeCount> kFacts = {{
    {DType::boolean, "bool", 1, "S-PNX&|^-"},
    {DType::u8, "u8", 1, "SAPNX&|^-"},
    {DType::i8, "i8", 1, "SAPNX&|^-"},
    {DType::u16, "u16", 2, "SAPNX&|^-"},
    {DType::i16, "i16", 2, "SAPNX&|^-"},
    {DType::u32, "u32", 4, "SAPNX&|^-"},
    {DType::i32, "i32", 4, "SAPNX&|^-"},
    {DType::u64, "u64", 8, "SAPNX&|^-"},
    {DType::i64, "i64", 8, "SAPNX&|^-"},
    {DType::f16, "f16", 2, "SAPNX---M"},
    {DType::bf16, "bf16", 2, "SAPNX---M"},
    {DType::f32, "f32", 4, "SAPNX---M"},
    {DType::f64, "f64", 8, "SAPNX---M"},
    {DType::c64, "c64", 8, "SAP-----M"},
    {DType::c128, "c128", 16, "SAP-----M"},
}};

TEST(Types, FactsAreInTheOrderOfTheEnumeration) {
  for (int i = 0; i < kDTypeCount; ++i) EXPECT_EQ(kFacts[i].dtype, static_cast<DType>(i));
}

TEST(Types, SizeAndNameOfEveryDType) {
  for (const DTypeFacts& facts : kFacts) {
    EXPECT_EQ(size_of(facts.dtype), facts.bytes) << facts.name;
    EXPECT_EQ(name_of(facts.dtype), facts.name);
  }
}

TEST(Types, SupportsExactlyTheMeaningfulReductions) {
  ASSERT_EQ(kAllKinds.size(), static_cast<std::size_t>(kReduceKindCount));
  for (const DTypeFacts& facts : kFacts) {
    for (int i = 0; i < kReduceKindCount; ++i) {
      const auto kind = static_cast<ReduceKind>(i);
      EXPECT_EQ(supports(facts.dtype, kind), facts.kinds[i] == kAllKinds[i])
          << name_of(facts.dtype) << " " << name_of(kind);
    }
  }
}

TEST(Types, EveryDTypeIsOfOneFamily) {
  for (const DTypeFacts& facts : kFacts) {
    const int families = is_floating(facts.dtype) + is_complex(facts.dtype) +
                         is_integer(facts.dtype) + (facts.dtype == DType::boolean);
    EXPECT_EQ(families, 1) << facts.name;
  }
}

TEST(Types, NamesOfReductions) {
  const std::array<std::string_view, kReduceKindCount> names = {
      "sum", "avg", "product", "min", "max", "band", "bor", "bxor", "premul_sum"};
  for (int i = 0; i < kReduceKindCount; ++i) {
    EXPECT_EQ(name_of(static_cast<ReduceKind>(i)), names[i]);
  }
}

TEST(Types, NamesOfCollectives) {
  const std::array<std::string_view, kCollectiveCount> names = {
      "all_reduce",     "broadcast",  "reduce",  "all_gather", "gather", "scatter",
      "reduce_scatter", "all_to_all", "barrier", "send",       "recv"};
  for (int i = 0; i < kCollectiveCount; ++i) {
    EXPECT_EQ(name_of(static_cast<Collective>(i)), names[i]);
  }
}

TEST(Types, NamesInvalidValues) {
  EXPECT_EQ(name_of(static_cast<DType>(200)), "unknown dtype");
  EXPECT_EQ(name_of(static_cast<ReduceKind>(200)), "unknown reduction");
  EXPECT_EQ(name_of(static_cast<Collective>(200)), "unknown collective");
}

}  // namespace
}  // namespace mccl
