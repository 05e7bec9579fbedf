#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/bench/routine.h"
#include "cli/kit/quantity.h"
#include "mccl/error.h"

namespace mccl::cli::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Sizes, AreInUnitsOf1024AndInTheOrderGiven) {
  EXPECT_THAT(parse_sizes("64M,8,64K,1MiB"),
              ElementsAre(std::size_t{64} << 20, 8, 65536, std::size_t{1} << 20));
}

TEST(Sizes, RangesGrowByTheirFactor) {
  EXPECT_THAT(parse_sizes("8:128:x4"), ElementsAre(8, 32, 128));
  EXPECT_THAT(parse_sizes("8:127:x4"), ElementsAre(8, 32));
  EXPECT_THAT(parse_sizes("1K:4K"), ElementsAre(1024, 2048, 4096));
  EXPECT_THAT(parse_sizes("7,8:16:x2,1"), ElementsAre(7, 8, 16, 1));
}

TEST(Sizes, RefusesInvalidSizesByName) {
  for (const char* text :
       {"", "8,", ",8", "x", "8Q", "-1", "0", "2048G", "64:8", "8:64:4", "8:64:x1", "8:64:x",
        "8:64:x2:x2", "8::", "1:1024G:x2,1:1024G:x2,99999999999999999999"}) {
    EXPECT_THROW(parse_sizes(text), InvalidArgument) << text;
  }
  try {
    parse_sizes("8,twelve");
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("\"twelve\""));
    EXPECT_THAT(error.what(), HasSubstr("8:64M:x4"));
  }
}

TEST(Sizes, TooManyAreRefused) {
  std::string text = "1:1024G";
  for (int i = 0; i < 30; ++i) text += ",1:1024G";
  EXPECT_THROW(parse_sizes(text), InvalidArgument);
}

TEST(Sizes, TextReadsBackAsTheSame) {
  EXPECT_EQ(text_of_size(65536), "64K");
  EXPECT_EQ(text_of_size(1000), "1000");
  EXPECT_EQ(text_of_size(std::size_t{3} << 40), "3072G");
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{1536}, std::size_t{5} << 30})
    EXPECT_THAT(parse_sizes(text_of_size(bytes)), ElementsAre(bytes));
}

}  // namespace
}  // namespace mccl::cli::bench
