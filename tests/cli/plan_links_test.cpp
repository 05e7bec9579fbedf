#include <gmock/gmock.h>

#include "base/expect_refusal.h"
#include "cli/plan/facts.h"

namespace mccl::cli::plan {
namespace {

using test::refusal;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(PlanLinks, AreCablesWithRatesAndLatencies) {
  const Cabling cabling = parse_links(
      R"([{"between": [1, 0], "rate": "10Gbit", "latency": "20us"}, {"between": [1, 2]}])", "file",
      3);
  ASSERT_EQ(cabling.cables().size(), 2U);
  EXPECT_EQ(cabling.cables()[0].a, 0);
  EXPECT_DOUBLE_EQ(cabling.cables()[0].bytes_per_s, 1.25e9);
  EXPECT_DOUBLE_EQ(cabling.cables()[0].latency_s, 20e-6);
  EXPECT_EQ(cabling.cables()[1].bytes_per_s, 0);
}

TEST(PlanLinks, ReportTheRingAndTheTree) {
  const Cabling line = parse_links(R"([{"between": [0, 1]}, {"between": [1, 2]}])", "file", 3);
  const schedule::CableMap map(line, {0, 1, 2}, 20e-6, 1e9);
  EXPECT_EQ(links_text(line, &map), "# 2 cables\n#   ring: none\n#   tree: 1 - 0, 1 - 2\n");
  EXPECT_EQ(links_text(parse_links(R"([{"between": [0, 1]}])", "file", 2), nullptr),
            "# 1 cables: every rank is connected to every other rank\n");
}

TEST(PlanLinks, RefuseUnknownContent) {
  for (const char* text :
       {"", "{}", "[1]", "[{}]", R"([{"between": [0]}])", R"([{"between": [0, "1"]}])",
        R"([{"between": [0, 4294967297]}])", R"([{"between": [0, -1]}])",
        R"([{"between": [0, 1], "speed": "1Gbit"}])", R"([{"between": [0, 1], "rate": 10}])"}) {
    EXPECT_THAT(refusal([text] { parse_links(text, "file", 2); }),
                AllOf(StartsWith("file"), HasSubstr(": expected a list of cables such as")))
        << text;
  }
  const std::string deep(100'000, '[');
  EXPECT_THAT(refusal([&] { parse_links(deep + std::string(deep.size(), ']'), "file", 2); }),
              HasSubstr("brackets more than 64 deep"));
  EXPECT_THAT(refusal([] { parse_links(R"([{"between": [0, 1], "rate": "fast"}])", "file", 2); }),
              HasSubstr("file: rate"));
  EXPECT_THAT(refusal([] { parse_links(R"([{"between": [0, 9]}])", "file", 2); }),
              HasSubstr("two different ranks from 0 to 1"));
}

TEST(PlanLinks, ReportDisconnectedParts) {
  EXPECT_THAT(
      refusal([] { parse_links(R"([{"between": [0, 3]}])", "file", 4); }),
      HasSubstr("do not join all 4 ranks: no cable joins {0, 3} and {1} and {2}; add a cable"));
}

}  // namespace
}  // namespace mccl::cli::plan
