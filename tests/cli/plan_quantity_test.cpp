#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/kit/quantity.h"
#include "mccl/error.h"

namespace mccl::cli::plan {
namespace {

using ::testing::HasSubstr;

TEST(Quantity, TimesHaveUnits) {
  EXPECT_DOUBLE_EQ(parse_seconds("--x", "15us"), 15e-6);
  EXPECT_DOUBLE_EQ(parse_seconds("--x", "0.2 ms"), 0.2e-3);
  EXPECT_DOUBLE_EQ(parse_seconds("--x", "7ns"), 7e-9);
  EXPECT_DOUBLE_EQ(parse_seconds("--x", "2s"), 2);
}

TEST(Quantity, RatesAreInBitsOrBytes) {
  EXPECT_DOUBLE_EQ(parse_rate("--x", "10Gbit"), 1.25e9);
  EXPECT_DOUBLE_EQ(parse_rate("--x", "10gbit/s"), 1.25e9);
  EXPECT_DOUBLE_EQ(parse_rate("--x", "1.25 GB/s"), 1.25e9);
  EXPECT_DOUBLE_EQ(parse_rate("--x", "100Mbit"), 12.5e6);
}

TEST(Quantity, RefusesInvalidQuantitiesByName) {
  for (const char* text : {"", "15", "us", "15 lightyears", "-1us", "1..2us", "0us", "61s", "1e3s"})
    EXPECT_THROW(parse_seconds("--x", text), InvalidArgument) << text;
  // "10Gb" is ambiguous: bits or bytes.
  for (const char* text : {"", "10", "10Gb", "Gbit", "0Gbit", "99999999999Tbit", "10Gbit/h"})
    EXPECT_THROW(parse_rate("--x", text), InvalidArgument) << text;
  try {
    parse_rate("--link-rate", "fast");
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("--link-rate: \"fast\""));
    EXPECT_THAT(error.what(), HasSubstr("10Gbit"));
  }
}

TEST(Quantity, TextIsInFittingUnits) {
  EXPECT_EQ(text_of_seconds(15e-6), "15 us");
  EXPECT_EQ(text_of_seconds(2.5e-3), "2.5 ms");
  EXPECT_EQ(text_of_rate(1.25e9), "1.25 GB/s");
}

}  // namespace
}  // namespace mccl::cli::plan
