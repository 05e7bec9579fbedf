#include "base/node_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "mccl/error.h"

namespace mccl {
namespace {

using ::testing::ElementsAre;

TEST(NodeList, Expands) {
  EXPECT_THAT(expand_node_list("a"), ElementsAre("a"));
  EXPECT_THAT(expand_node_list("a,b.c-d"), ElementsAre("a", "b.c-d"));
  EXPECT_THAT(expand_node_list("n[1-3]"), ElementsAre("n1", "n2", "n3"));
  EXPECT_THAT(expand_node_list("n[08-10,3],m"), ElementsAre("n08", "n09", "n10", "n3", "m"));
  EXPECT_THAT(expand_node_list("r[1-2]n[1-2]x"), ElementsAre("r1n1x", "r1n2x", "r2n1x", "r2n2x"));
}

TEST(NodeList, RefusesInvalidLists) {
  for (const char* text :
       {"", ",", "a,", "n[", "n]", "n[]", "n[a]", "n[3-1]", "n[1-]", "n[[1]]", "n[-1]", "a b",
        "n[1-99999999]", "n[1-9999999999]", "n[0-9999]m[0-9999]"})
    EXPECT_THROW(expand_node_list(text), InvalidArgument) << text;
}

TEST(NodeList, ManyBracketsInOneNameAreRefused) {
  std::string text = "n";
  for (int i = 0; i < 300'000; ++i) text += "[1]";
  EXPECT_THROW(expand_node_list(text), InvalidArgument);
  EXPECT_THAT(expand_node_list("a[1]b[2]c[3]d[4]"), ElementsAre("a1b2c3d4"));
}

TEST(NodeList, ArbitraryTextGivesNamesOrAnError) {
  std::mt19937 random(7);
  constexpr std::string_view kLetters = "ab01-9[],.";
  for (int round = 0; round < 50000; ++round) {
    std::string text(random() % 16, ' ');
    for (char& c : text) c = kLetters[random() % kLetters.size()];
    try {
      for (const std::string& name : expand_node_list(text, 1000)) EXPECT_FALSE(name.empty());
    } catch (const InvalidArgument&) {
      continue;
    }
  }
}

}  // namespace
}  // namespace mccl
