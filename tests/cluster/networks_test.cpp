// Tests the choice of networks that all hosts share, and the checks of addresses in networks.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/checks.h"
#include "cluster/choice.h"

namespace mccl::cluster {
namespace {

using ::testing::ElementsAre;

HostFacts host_at(const std::string& name, const char* ipv4, const char* ipv6) {
  HostFacts host;
  host.host = name;
  Interface& interface = host.interfaces.emplace_back();
  interface.name = "eth0";
  interface.up = true;
  for (const char* address : {ipv4, ipv6})
    if (const auto network = parse_network(address)) interface.addresses.push_back(*network);
  return host;
}

const Connectivity kTogether = {
    .links = {}, .networks = {{{{0, "eth0"}, {1, "eth0"}, {2, "eth0"}}, InterfaceKind::cable, 0}}};

std::vector<std::string> ips_of_entries(std::span<const HostFacts> hosts,
                                        const TopologyChoice& choice) {
  std::vector<std::string> ips;
  for (const HostfileEntry& entry :
       entries_of(hosts, choice, {}, std::vector<std::string>(hosts.size())))
    ips.insert(ips.end(), entry.ips.begin(), entry.ips.end());
  return ips;
}

TEST(ChooseNetworks, UseIpv6IfThereIsNothingElse) {
  const std::vector<HostFacts> hosts = {host_at("a", "", "fd00::1/64"),
                                        host_at("b", "", "fd00::2/64"),
                                        host_at("c", "", "fd00::3/64")};
  const TopologyChoice choice = choose_networks(hosts, kTogether);
  EXPECT_EQ(choice.shape, Topology::network);
  EXPECT_THAT(ips_of_entries(hosts, choice), ElementsAre("fd00::1", "fd00::2", "fd00::3"));
}

TEST(ChooseNetworks, UseTheFamilyThatAllHostsHave) {
  std::vector<HostFacts> hosts = {host_at("a", "10.0.0.1/24", "fd00::1/64"),
                                  host_at("b", "10.0.0.2/24", "fd00::2/64"),
                                  host_at("c", "10.0.0.3/24", "fd00::3/64")};
  EXPECT_THAT(ips_of_entries(hosts, choose_networks(hosts, kTogether)),
              ElementsAre("10.0.0.1", "10.0.0.2", "10.0.0.3"));
  std::erase(hosts[1].interfaces[0].addresses, *parse_network("10.0.0.2/24"));
  EXPECT_THAT(ips_of_entries(hosts, choose_networks(hosts, kTogether)),
              ElementsAre("fd00::1", "fd00::2", "fd00::3"));
  std::erase(hosts[2].interfaces[0].addresses, *parse_network("fd00::3/64"));
  EXPECT_EQ(choose_networks(hosts, kTogether).shape, Topology::none);
}

TEST(JoinedBy, UsesIpv6AddressesIfNoCallIsHeard) {
  const std::vector<HostFacts> hosts = {host_at("a", "", "fd00::1/64"),
                                        host_at("b", "", "fd00::2/64"),
                                        host_at("c", "", "fd00::3/64")};
  const Connectivity joined = joined_by(hosts, {});
  ASSERT_EQ(joined.networks.size(), 1U);
  EXPECT_EQ(joined.networks[0].ends.size(), 3U);
}

/// Each network is on c0 of one host and on c1 of the other, as if the plugs were exchanged.
TEST(CheckAddressing, ReportsSwappedCables) {
  std::vector<HostFacts> hosts(2);
  for (std::size_t i = 0; i < 2; ++i) {
    hosts[i].host = i == 0 ? "a" : "b";
    for (int cable = 0; cable < 2; ++cable) {
      Interface& interface = hosts[i].interfaces.emplace_back();
      interface.name = fmt::format("c{}", cable);
      interface.up = true;
      interface.addresses = {*parse_network(fmt::format("10.0.{}.{}/30", cable, i + 1))};
    }
  }
  const Connectivity crossed{.links = {{{0, "c0"}, {1, "c1"}}, {{0, "c1"}, {1, "c0"}}},
                             .networks = {}};
  const auto findings = check_addressing(hosts, crossed);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].id, "cables-swapped");
  EXPECT_EQ(findings[0].where, "b (c1), b (c0)");
  const Connectivity straight{.links = {{{0, "c0"}, {1, "c0"}}, {{0, "c1"}, {1, "c1"}}},
                              .networks = {}};
  EXPECT_TRUE(check_addressing(hosts, straight).empty());
  // One mismatched cable is not reported as two exchanged cables.
  const Connectivity one{.links = {{{0, "c0"}, {1, "c1"}}}, .networks = {}};
  ASSERT_EQ(check_addressing(hosts, one).size(), 1U);
  EXPECT_EQ(check_addressing(hosts, one)[0].id, "cable-ends-differ");
  EXPECT_EQ(check_addressing(hosts, one)[0].cure.substr(0, 67),
            "remove the address of one end, b (c1): sudo ip addr del 10.0.1.2/30");
}

}  // namespace
}  // namespace mccl::cluster
