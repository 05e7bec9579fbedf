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
                           "a.b.c.d", "1..2.3", "1.2.3.4 ", "-1.2.3.4", "1.2.3.0004", "fe80::1"})
    EXPECT_FALSE(parse_network(text)) << text;
}

TEST(Network, HoldsAddressesAndOverlaps) {
  const Network network = *parse_network("192.168.4.5/30");
  EXPECT_EQ(text_of(network.base()), "192.168.4.4/30");
  EXPECT_TRUE(network.holds(*parse_ipv4("192.168.4.7")));
  EXPECT_FALSE(network.holds(*parse_ipv4("192.168.4.8")));
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

}  // namespace
}  // namespace mccl::cluster
