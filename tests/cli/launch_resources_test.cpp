// Tests the choice of the cores to which ranks are bound.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "cli/launch/resources.h"

namespace mccl::cli::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Two sockets with two cores of two threads each. Linux numbers the first threads of all cores
/// first.
const Processors kTwoSockets =
    processors_of("0-7", "0:0:0 1:0:1 2:1:0 3:1:1 4:0:0 5:0:1 6:1:0 7:1:1");

std::vector<std::string> lists(BindTo bind_to, const Processors& processors, std::size_t ranks) {
  std::vector<std::string> lists;
  for (const Binding& binding : bindings_of(bind_to, processors, std::vector<Variables>(ranks)))
    lists.push_back(binding.processors.empty() ? binding.why_not : list_of(binding.processors));
  return lists;
}

TEST(LaunchBinding, RanksShareAllCoresInEqualParts) {
  EXPECT_THAT(lists(BindTo::share, kTwoSockets, 2), ElementsAre("0-1,4-5", "2-3,6-7"));
  EXPECT_THAT(lists(BindTo::share, kTwoSockets, 4), ElementsAre("0,4", "1,5", "2,6", "3,7"));
  EXPECT_THAT(lists(BindTo::share, kTwoSockets, 8),
              ElementsAre("0", "4", "1", "5", "2", "6", "3", "7"));
}

TEST(LaunchBinding, DividesAllCoresIntoEqualParts) {
  for (int cores = 1; cores < 20; ++cores) {
    const Processors processors =
        processors_of(list_of([&] {
                        std::vector<int> all(static_cast<std::size_t>(cores));
                        std::iota(all.begin(), all.end(), 0);
                        return all;
                      }()),
                      "");
    for (std::size_t ranks = 2; ranks <= static_cast<std::size_t>(cores); ++ranks) {
      std::vector<int> given;
      std::size_t least = 99;
      std::size_t most = 0;
      for (const Binding& binding :
           bindings_of(BindTo::share, processors, std::vector<Variables>(ranks))) {
        given.insert(given.end(), binding.processors.begin(), binding.processors.end());
        least = std::min(least, binding.processors.size());
        most = std::max(most, binding.processors.size());
      }
      EXPECT_EQ(given.size(), static_cast<std::size_t>(cores));
      EXPECT_TRUE(std::ranges::is_sorted(given));
      EXPECT_LE(most - least, 1U);
    }
  }
}

TEST(LaunchBinding, OneCoreEach) {
  EXPECT_THAT(lists(BindTo::core, kTwoSockets, 3), ElementsAre("0,4", "1,5", "2,6"));
  EXPECT_THAT(lists(BindTo::core, kTwoSockets, 1), ElementsAre("0,4"));
  EXPECT_THAT(lists(BindTo::core, kTwoSockets, 5), ElementsAre("0", "4", "1", "5", "2"));
}

TEST(LaunchBinding, DoesNotBindIfItWouldDoHarm) {
  const auto why = [](BindTo bind_to, const Processors& processors, std::size_t ranks) {
    return lists(bind_to, processors, ranks).front();
  };
  EXPECT_EQ(why(BindTo::none, kTwoSockets, 2), "--bind-to none");
  EXPECT_THAT(why(BindTo::share, kTwoSockets, 9), HasSubstr("more ranks than cores"));
  EXPECT_THAT(why(BindTo::share, kTwoSockets, 1), HasSubstr("only rank"));
  EXPECT_THAT(why(BindTo::share, Processors{}, 2), HasSubstr("does not report"));
  Processors limited = kTwoSockets;
  limited.quota = 1.5;
  EXPECT_THAT(why(BindTo::core, limited, 2), HasSubstr("more ranks than cores"));
  const std::vector<Variables> users = {{{"OMP_PROC_BIND", "true"}}, {}};
  EXPECT_EQ(bindings_of(BindTo::core, kTwoSockets, users)[1].why_not, "OMP_PROC_BIND is set");
}

TEST(LaunchBinding, ChecksTheAnswerOfAHost) {
  EXPECT_TRUE(processors_of("", "0:0:0").cores.empty());
  EXPECT_TRUE(processors_of("x", "0:0:0").cores.empty());
  EXPECT_TRUE(processors_of("3-1", "").cores.empty());
  EXPECT_EQ(processors_of("0-1", "0 : :: 1:a:b 0:99999999999999999999:0").cores.size(), 2U);
}

}  // namespace
}  // namespace mccl::cli::launch
