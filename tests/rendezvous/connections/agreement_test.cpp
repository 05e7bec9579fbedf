#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rendezvous/connections/handshake.h"

namespace mccl::rendezvous {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string between(std::string_view here, std::string_view there) {
  return difference({2, here}, {5, there});
}

TEST(Agreement, EqualTextsDoNotDiffer) {
  EXPECT_EQ(between("", ""), "");
  EXPECT_EQ(between("a=1\nb=2\n", "a=1\nb=2\n"), "");
}

TEST(Agreement, NamesEverySettingThatDiffersAndNoOther) {
  const std::string text = between("a=1\nb=2\nc=3\n", "a=1\nb=7\nc=8\n");
  EXPECT_THAT(text, HasSubstr("b (rank 2 has 2, rank 5 has 7)"));
  EXPECT_THAT(text, HasSubstr("c (rank 2 has 3, rank 5 has 8)"));
  EXPECT_THAT(text, Not(HasSubstr("a (")));
}

TEST(Agreement, NamesWhatOneSideLacks) {
  EXPECT_THAT(between("a=1\n", "a=1\nb=2\n"),
              HasSubstr("b (rank 2 has no such setting, rank 5 has 2)"));
  EXPECT_THAT(between("a=\n", "a=2\n"), HasSubstr("a (rank 2 has nothing, rank 5 has 2)"));
}

TEST(Agreement, AnotherOrderIsAnotherForm) {
  EXPECT_THAT(between("a=1\nb=2\n", "b=2\na=1\n"), HasSubstr("version"));
}

TEST(Agreement, WhatThePeerSentIsMadePrintableAndShort) {
  const std::string text = between("a=1\n", "a=\x1b[2J\x01" + std::string(5000, 'x') + "\n");
  EXPECT_LT(text.size(), 1000u);
  for (const char c : text) EXPECT_TRUE(c >= ' ') << static_cast<int>(c);
  std::string many;
  for (int i = 0; i < 1000; ++i) many += "name" + std::to_string(i) + "=1\n";
  EXPECT_LT(between("", many).size(), 2000u);
  EXPECT_THAT(between("", many), HasSubstr("992 more"));
}

}  // namespace
}  // namespace mccl::rendezvous
