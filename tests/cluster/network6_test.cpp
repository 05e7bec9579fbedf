#include "cluster/network6.h"

#include <gtest/gtest.h>

namespace mccl::cluster {
namespace {

TEST(Network6, IsReadAndWritten) {
  for (const char* text : {"::/0", "fd00::1/64", "2001:db8:1:2:3:4:5:6/128", "::1/128"})
    EXPECT_EQ(text_of(*parse_network6(text)), text);
  EXPECT_EQ(text_of(*parse_network6("FD00:0:0:0:0:0:0:1")), "fd00::1/128");
}

TEST(Network6, IsNotReadFromAnythingElse) {
  for (const char* text : {"", "1.2.3.4", "fd00::1/129", "fd00::1/", "fd00::1/-1", "fd00::1%eth0",
                           "fd00:::1", "fd00::g", "fd00::1 "})
    EXPECT_FALSE(parse_network6(text)) << text;
  EXPECT_FALSE(parse_network6(std::string(100'000, ':')));
}

TEST(Network6, HasABase) {
  EXPECT_EQ(text_of(parse_network6("fd00:1:2:3:4::5/64")->base()), "fd00:1:2:3::/64");
  EXPECT_EQ(text_of(parse_network6("fd00:1:2:ffff::5/51")->base()), "fd00:1:2:e000::/51");
  EXPECT_EQ(text_of(parse_network6("fd00::5/0")->base()), "::/0");
  EXPECT_EQ(parse_network6("fd00::5")->base(), parse_network6("fd00::5"));
}

}  // namespace
}  // namespace mccl::cluster
