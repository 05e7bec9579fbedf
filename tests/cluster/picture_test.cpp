#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "cluster/links.h"

namespace mccl::cluster {
namespace {

TEST(Picture, QuotesHostNames) {
  std::vector<HostFacts> hosts(2);
  hosts[0].host = "a\"<&\\";
  hosts[1].host = "b";
  Connectivity joined;
  joined.links.resize(1);
  joined.links[0].a = {0, "en2"};
  joined.links[0].b = {1, "en3"};
  EXPECT_THAT(dot_of(joined, hosts), ::testing::HasSubstr("\"a\\\"<&\\\\\" -- \"b\""));
}

}  // namespace
}  // namespace mccl::cluster
