#include "cluster/network.h"

#include <gtest/gtest.h>

namespace mccl::cluster {
namespace {

TEST(Network, IsReadAndWritten) {
  for (const char* text : {"0.0.0.0/0", "10.1.2.3/24", "255.255.255.255/32"})
    EXPECT_EQ(text_of(*parse_network(text)), text);
  EXPECT_EQ(parse_network("1.2.3.4")->prefix_bits, 32);
}

TEST(Network, IsNotReadFromAnythingElse) {
  for (const char* text : {"", "1.2.3", "1.2.3.4.5", "1.2.3.256", "1.2.3.4/33", "1.2.3.4/",
                           "a.b.c.d", "1..2.3", "1.2.3.4 ", "-1.2.3.4", "1.2.3.0004"})
    EXPECT_FALSE(parse_network(text)) << text;
}

TEST(Network, HoldsAddressesAndOverlaps) {
  const Network network = *parse_network("192.168.4.5/30");
  EXPECT_EQ(text_of(network.base()), "192.168.4.4/30");
  EXPECT_TRUE(network.holds(*parse_address("192.168.4.7")));
  EXPECT_FALSE(network.holds(*parse_address("192.168.4.8")));
  EXPECT_TRUE(network.overlaps(*parse_network("192.168.0.0/16")));
  EXPECT_TRUE(parse_network("0.0.0.0/0")->overlaps(network));
  EXPECT_FALSE(network.overlaps(*parse_network("192.168.4.8/30")));
}

TEST(Network, HasAMask) {
  EXPECT_EQ(text_of(mask_of(30)), "255.255.255.252");
  EXPECT_EQ(text_of(mask_of(0)), "0.0.0.0");
  EXPECT_EQ(prefix_of_mask("0xfffffffc"), 30);
  EXPECT_EQ(prefix_of_mask("255.255.0.0"), 16);
  EXPECT_FALSE(prefix_of_mask("0xff00ff00"));
  EXPECT_FALSE(prefix_of_mask("0x"));
}

TEST(Ipv6Network, IsReadAndWritten) {
  for (const char* text : {"::/0", "fd00::1/64", "2001:db8:1:2:3:4:5:6/128", "::1/128"})
    EXPECT_EQ(text_of(*parse_network(text)), text);
  EXPECT_EQ(text_of(*parse_network("FD00:0:0:0:0:0:0:1")), "fd00::1/128");
}

TEST(Ipv6Network, IsNotReadFromAnythingElse) {
  for (const char* text : {"", "fd00::1/129", "fd00::1/", "fd00::1/-1", "fd00::1%eth0", "fd00:::1",
                           "fd00::g", "fd00::1 "})
    EXPECT_FALSE(parse_network(text)) << text;
  EXPECT_FALSE(parse_network(std::string(100'000, ':')));
}

TEST(Ipv6Network, HasABase) {
  EXPECT_EQ(text_of(parse_network("fd00:1:2:3:4::5/64")->base()), "fd00:1:2:3::/64");
  EXPECT_EQ(text_of(parse_network("fd00:1:2:ffff::5/51")->base()), "fd00:1:2:e000::/51");
  EXPECT_EQ(text_of(parse_network("fd00::5/0")->base()), "::/0");
  EXPECT_EQ(parse_network("fd00::5")->base(), parse_network("fd00::5"));
}

TEST(Network, HoldsNoAddressOfAnotherFamily) {
  EXPECT_FALSE(parse_network("0.0.0.0/0")->overlaps(*parse_network("::/0")));
  EXPECT_TRUE(parse_network("fd00::1/64")->holds(*parse_address("fd00::ffff")));
  EXPECT_FALSE(parse_network("fd00::1/64")->holds(*parse_address("fd00:0:0:1::")));
}

}  // namespace
}  // namespace mccl::cluster
