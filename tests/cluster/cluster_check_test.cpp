// Tests the checks that compare hosts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/checks.h"

namespace mccl::cluster {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

HostFacts host_with(const std::string& name, const std::string& boot, const std::string& mac) {
  HostFacts host;
  host.host = name;
  host.boot = boot;
  Interface& cable = host.interfaces.emplace_back();
  cable.name = "eth0";
  cable.up = true;
  cable.mac = mac;
  cable.addresses = {*parse_network("10.0.0.1/24")};
  return host;
}

TEST(CheckIdentity, FindsOneMachineUnderTwoNames) {
  const std::vector<HostFacts> hosts = {host_with("a", "boot", "02:00:00:00:00:01"),
                                        host_with("b", "boot", "02:00:00:00:00:02"),
                                        host_with("c", "boot", "02:00:00:00:00:01")};
  const auto findings = check_identity(hosts);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].where, "a, c");
  EXPECT_EQ(findings[0].what, "these names refer to the same machine");
}

TEST(CheckIdentity, TreatsContainersAsSeparateMachines) {
  // Docker gives the first container on every machine the same MAC address.
  const std::vector<HostFacts> hosts = {host_with("a", "boot", "02:42:ac:11:00:02"),
                                        host_with("b", "another", "02:42:ac:11:00:02")};
  EXPECT_THAT(check_identity(hosts), IsEmpty());
}

TEST(CheckIdentity, FindsNothingForHostsWithoutFacts) {
  const std::vector<HostFacts> hosts(2);
  EXPECT_THAT(check_identity(hosts), IsEmpty());
}

}  // namespace
}  // namespace mccl::cluster
