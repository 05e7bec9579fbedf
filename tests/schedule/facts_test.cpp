#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "schedule/choose.h"

namespace mccl::schedule {
namespace {

TEST(Facts, EveryNumberIsListedOnceAndCanBeSetSeparately) {
  std::set<std::string_view> names;
  for (const FactInfo& info : fact_table()) {
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
    EXPECT_EQ(find_fact(info.name), &info);
    Facts facts;
    assign(facts, info, 1234);
    for (const FactInfo& other : fact_table()) {
      EXPECT_EQ(value_of(facts, other), &other == &info ? 1234 : value_of(Facts{}, other))
          << info.name << " and " << other.name;
    }
  }
  EXPECT_EQ(find_fact("latency"), nullptr);
}

TEST(Facts, DefaultsAreValid) {
  for (const FactInfo& info : fact_table())
    EXPECT_TRUE(is_possible(info, value_of(Facts{}, info))) << info.name;
}

TEST(Facts, RefusesNumbersThatDivideByZeroOrOverflow) {
  for (const FactInfo& info : fact_table()) {
    EXPECT_FALSE(is_possible(info, -1)) << info.name;
    EXPECT_FALSE(is_possible(info, std::numeric_limits<double>::infinity())) << info.name;
    EXPECT_FALSE(is_possible(info, std::numeric_limits<double>::quiet_NaN())) << info.name;
  }
  EXPECT_FALSE(is_possible(*find_fact("bytes_per_s"), 0));
  EXPECT_FALSE(is_possible(*find_fact("chunk_bytes"), 0));
  EXPECT_FALSE(is_possible(*find_fact("chunk_bytes"), 1e30));
  EXPECT_FALSE(is_possible(*find_fact("ranks_per_core"), 0.5));
  EXPECT_TRUE(is_possible(*find_fact("window_bytes"), 0));
}

}  // namespace
}  // namespace mccl::schedule
