// Tests how cables are found and get addresses, and which backend is chosen for them.
#include "cluster/links.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "cluster/choice.h"
#include "cluster/setup.h"
#include "cluster/subnets.h"
#include "mccl/error.h"

namespace mccl::cluster {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::ThrowsMessage;

Interface interface_of(const std::string& name, const std::string& address = "") {
  Interface interface;
  interface.name = name;
  interface.up = true;
  interface.mbit_per_s = 40'000;
  if (!address.empty()) interface.addresses.push_back(*parse_network(address));
  return interface;
}

std::vector<HostFacts> hosts_of(int count) {
  std::vector<HostFacts> hosts(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) {
    hosts[static_cast<std::size_t>(i)].host = std::string(1, static_cast<char>('a' + i));
    hosts[static_cast<std::size_t>(i)].system = System::gnu_linux;
    hosts[static_cast<std::size_t>(i)].is_root = true;
    for (const char* name : {"e0", "e1", "e2", "e3"})
      hosts[static_cast<std::size_t>(i)].interfaces.push_back(interface_of(name));
  }
  return hosts;
}

/// Returns text such as "a (e1) to b (e2)".
std::string ends_of(const CableLink& link, Hosts hosts) {
  return name_of(hosts, link.a) + " to " + name_of(hosts, link.b);
}

CableLink cable(int a, const std::string& at_a, int b, const std::string& at_b) {
  CableLink link;
  link.a = {a, at_a};
  link.b = {b, at_b};
  link.mbit_per_s = 40'000;
  return link;
}

ThunderboltPort port_of(const std::string& own, const std::string& peer,
                        const std::string& interface) {
  ThunderboltPort port;
  port.receptacle = interface.substr(1);
  port.own = own;
  port.peer_id = peer;
  port.interface = interface;
  return port;
}

TEST(ThunderboltLinks, ConnectPortsThatNameEachOther) {
  std::vector<HostFacts> hosts = hosts_of(2);
  hosts[0].ports = {port_of("A1", "B2", "e1"), port_of("A2", "", "e2")};
  hosts[1].ports = {port_of("B1", "", "e1"), port_of("B2", "A1", "e2")};
  std::vector<Finding> findings;
  const std::vector<CableLink> links = thunderbolt_links(hosts, {}, findings);
  ASSERT_THAT(links, SizeIs(1));
  EXPECT_EQ(ends_of(links[0], hosts), "a (e1) to b (e2)");
  EXPECT_THAT(findings, IsEmpty());
}

TEST(ThunderboltLinks, ReportCablesToUnknownComputers) {
  std::vector<HostFacts> hosts = hosts_of(2);
  hosts[0].ports = {port_of("A1", "X", "e1"), port_of("A2", "A3", "e2"), port_of("A3", "A2", "e3")};
  hosts[1].ports = {port_of("B1", "A1", "e1")};
  std::vector<Finding> findings;
  EXPECT_THAT(thunderbolt_links(hosts, {}, findings), IsEmpty());
  ASSERT_THAT(findings, SizeIs(3));
  EXPECT_THAT(findings[0].what, HasSubstr("not one of these hosts"));
  EXPECT_THAT(findings[1].what, HasSubstr("another port of the same host"));
  EXPECT_THAT(findings[2].what, HasSubstr("that the port at the other end does not detect"));
}

TEST(JoinedBy, TwoEndsAreACableAndMoreANetwork) {
  const std::vector<HostFacts> hosts = hosts_of(3);
  const std::vector<Heard> heard = {{{0, "e0"}, {1, "e0"}},
                                    {{1, "e1"}, {0, "e1"}},
                                    {{2, "e1"}, {1, "e1"}},
                                    {{0, "e0"}, {1, "e0"}}};
  const Connectivity joined = joined_by(hosts, heard);
  ASSERT_THAT(joined.links, SizeIs(1));
  EXPECT_EQ(ends_of(joined.links[0], hosts), "a (e0) to b (e0)");
  ASSERT_THAT(joined.networks, SizeIs(1));
  EXPECT_THAT(joined.networks[0].ends, ElementsAre(End{0, "e1"}, End{1, "e1"}, End{2, "e1"}));
}

TEST(JoinedBy, UsesAddressesIfNoCallIsHeard) {
  std::vector<HostFacts> hosts = hosts_of(2);
  hosts[0].interfaces[0] = interface_of("e0", "10.0.0.1/24");
  hosts[1].interfaces[1] = interface_of("e1", "10.0.0.2/24");
  EXPECT_EQ(ends_of(joined_by(hosts, {}).links.at(0), hosts), "a (e0) to b (e1)");
}

TEST(JoinedBy, IgnoresInterfacesOfUnknownHosts) {
  const std::vector<HostFacts> hosts = hosts_of(2);
  const std::vector<Heard> heard = {{{0, "e0"}, {1, "e0; reboot"}}, {{0, "e7"}, {1, "e1"}}};
  const Connectivity joined = joined_by(hosts, heard);
  EXPECT_THAT(joined.links, IsEmpty());
  EXPECT_THAT(joined.networks, IsEmpty());
}

TEST(ThunderboltLinks, DistinguishParallelCablesByTheirCalls) {
  // Linux reports the computer behind a cable, but not its port.
  std::vector<HostFacts> hosts = hosts_of(2);
  hosts[0].ports = {port_of("A", "B", "e1"), port_of("A", "B", "e2")};
  hosts[1].ports = {port_of("B", "A", "e1"), port_of("B", "A", "e2")};
  const std::vector<Heard> heard = {{{1, "e2"}, {0, "e1"}}, {{0, "e2"}, {1, "e1"}}};
  std::vector<Finding> findings;
  const std::vector<CableLink> links = thunderbolt_links(hosts, heard, findings);
  ASSERT_THAT(links, SizeIs(2));
  EXPECT_EQ(ends_of(links[0], hosts), "a (e1) to b (e2)");
  EXPECT_EQ(ends_of(links[1], hosts), "a (e2) to b (e1)");
}

TEST(ThunderboltLinks, NeedNamedPorts) {
  std::vector<HostFacts> hosts = hosts_of(2);
  hosts[0].ports = {port_of("", "B1", "e1")};
  hosts[1].ports = {port_of("B1", "", "e1")};
  std::vector<Finding> findings;
  EXPECT_THAT(thunderbolt_links(hosts, {}, findings), IsEmpty());
}

TEST(GiveAddresses, AvoidsAddressesInUse) {
  std::vector<HostFacts> hosts = hosts_of(2);
  hosts[0].interfaces[3] = interface_of("e3", "192.168.0.2/30");
  hosts[1].routes = {{*parse_network("192.168.0.8/29"), ""}};
  const std::vector<CableLink> links = {cable(0, "e0", 1, "e0"), cable(0, "e1", 1, "e1")};
  const auto given = give_addresses(hosts, links);
  EXPECT_EQ(text_of(given[0].a), "192.168.0.5/30");
  EXPECT_EQ(text_of(given[0].b), "192.168.0.6/30");
  EXPECT_EQ(text_of(given[1].a), "192.168.0.17/30");
}

TEST(GiveAddresses, IgnoresRoutesThatActAsADefaultRoute) {
  std::vector<HostFacts> hosts = hosts_of(2);
  hosts[0].routes = {{*parse_network("0.0.0.0/1"), ""}, {*parse_network("128.0.0.0/1"), ""}};
  const std::vector<CableLink> links = {cable(0, "e0", 1, "e0")};
  EXPECT_EQ(text_of(give_addresses(hosts, links)[0].a), "192.168.0.1/30");
}

TEST(GiveAddresses, KeepsExistingAddresses) {
  std::vector<HostFacts> hosts = hosts_of(2);
  const std::vector<CableLink> links = {cable(0, "e0", 1, "e0")};
  const auto given = [&](const SubnetChoice& choice = {}) {
    return text_of(give_addresses(hosts, links, choice)[0].a);
  };
  // The prefix length of this address's network is unknown.
  hosts[1].in_use = {{*parse_network("192.168.0.77"), "an end of the ssh connection"}};
  EXPECT_EQ(given(), "192.168.1.1/30");
  // Now it is known: the host has an address in that network.
  hosts[1].interfaces[3] = interface_of("e3", "192.168.0.64/26");
  EXPECT_EQ(given(), "192.168.0.1/30");
  std::vector<HostFacts> others = hosts_of(1);
  others[0].routes = {{*parse_network("192.168.0.0/27"), ""}};
  EXPECT_EQ(given({.others = others}), "192.168.0.33/30");
  EXPECT_EQ(given({.others = others, .within = parse_network("10.9.8.0/28")}), "10.9.8.1/30");
  others[0].in_use = {{*parse_network("10.9.8.3"), "a DNS server"}};
  EXPECT_THAT([&] { given({.others = others, .within = parse_network("10.9.8.0/28")}); },
              ThrowsMessage<Error>(HasSubstr("10.9.8.3/32 is a DNS server of a")));
}

TEST(GiveAddresses, HandlesTensOfThousandsOfRoutes) {
  constexpr int kHosts = 64;
  constexpr std::uint32_t kRoutes = 10'000;
  std::vector<HostFacts> hosts = hosts_of(kHosts);
  std::vector<CableLink> links;
  for (int host = 0; host < kHosts; ++host) {
    for (std::uint32_t i = 0; i < kRoutes; ++i)
      hosts[host].routes.push_back({{{0xC0A80000 + 4 * i}, 30}, "e1"});
    for (int peer = 0; peer < host; ++peer) links.push_back(cable(peer, "e0", host, "e0"));
  }
  const std::vector<Addressed> all = give_addresses(hosts, links);
  EXPECT_EQ(text_of(all.front().a), "192.168.156.65/30");
  EXPECT_EQ(all[links.size() - 1].a.address.bits, 0xC0A80001 + 4 * (kRoutes + links.size() - 1));
}

TEST(GiveAddresses, SaysWhenCablesHaveTakenTheWholeSubnet) {
  const std::vector<HostFacts> hosts = hosts_of(2);
  const std::vector<CableLink> links = {cable(0, "e0", 1, "e0"), cable(0, "e1", 1, "e1")};
  EXPECT_THAT([&] { give_addresses(hosts, links, {.within = parse_network("10.9.8.0/30")}); },
              ThrowsMessage<Error>(HasSubstr("the cables use the whole range")));
}

std::vector<std::string> kept_by(const std::string& manager, HostFacts host) {
  std::vector<HostFacts> hosts = hosts_of(2);
  hosts[0] = std::move(host);
  hosts[0].network_manager = manager;
  hosts[1].network_manager = "netplan";
  const std::vector<CableLink> links = {cable(0, "e0", 1, "e0")};
  std::vector<std::string> texts;
  for (const SetupStep& step : persist_steps(hosts, give_addresses(hosts, links)))
    if (step.host == 0) texts.push_back(step.command + " / " + step.undo);
  return texts;
}

TEST(PersistSteps, ConfigureTheNetworkManagerOfEachHost) {
  HostFacts host = hosts_of(1)[0];
  EXPECT_THAT(kept_by("systemd-networkd", host),
              ElementsAre(AllOf(HasSubstr("\"Name=e0\""), HasSubstr("\"Address=192.168.0.1/30\""),
                                HasSubstr("{ rm -f /etc/systemd/network/05-mccl-e0.network; "))));
  EXPECT_THAT(kept_by("netplan", host), ElementsAre(HasSubstr("netplan generate")));
  EXPECT_THAT(kept_by("NetworkManager", host),
              ElementsAre(HasSubstr("connection.autoconnect $(cat ")));
  host.system = System::macos;
  host.is_root = false;
  host.interfaces[0].bridge = "bridge0";
  EXPECT_THAT(
      kept_by("networksetup", host),
      ElementsAre(
          HasSubstr("sudo networksetup -setnetworkserviceenabled \"Thunderbolt Bridge\" off"),
          HasSubstr("-setmanual \"mccl e0\" 192.168.0.1 255.255.255.252")));
}

TEST(PersistSteps, AreRefusedIfTheyWouldRemoveOtherAddresses) {
  HostFacts host = hosts_of(1)[0];
  EXPECT_THAT([&] { kept_by("", host); },
              ThrowsMessage<Error>(HasSubstr("a has none of netplan, NetworkManager")));
  host.interfaces[0] = interface_of("e0", "10.1.2.3/24");
  EXPECT_THAT([&] { kept_by("systemd-networkd", host); },
              ThrowsMessage<Error>(
                  HasSubstr("e0 of a also has the address 10.1.2.3/24, which would be lost")));
  EXPECT_THAT(kept_by("netplan", host), SizeIs(1));
}

TEST(PersistSteps, KeepAddressesOfAnEarlierSetup) {
  std::vector<HostFacts> hosts = hosts_of(2);
  for (int i = 0; i < 2; ++i) {
    hosts[i].network_manager = "systemd-networkd";
    hosts[i].interfaces[0] = interface_of("e0", i == 0 ? "10.0.0.1/30" : "10.0.0.2/30");
    hosts[i].interfaces[1] = interface_of("e1", i == 0 ? "10.1.0.1/24" : "10.1.0.2/24");
  }
  const std::vector<CableLink> links = {cable(0, "e0", 1, "e0"), cable(0, "e1", 1, "e1")};
  // MCCL makes only /30 networks, so no step keeps the addresses of the /24.
  EXPECT_THAT(persist_steps(hosts, give_addresses(hosts, links)), SizeIs(2));
}

TEST(GiveAddresses, BothEndsOfACableShareASubnetOfTheirOwn) {
  std::mt19937 random(9);
  for (int round = 0; round < 100; ++round) {
    std::vector<HostFacts> hosts = hosts_of(8);
    std::vector<Network> taken;
    for (HostFacts& host : hosts) {
      const int bits = 12 + static_cast<int>(random() % 19);
      const Network network{{0xC0A80000U | (static_cast<std::uint32_t>(random()) & 0xFFFF)}, bits};
      host.routes.push_back({network, ""});
      taken.push_back(network);
    }
    std::vector<CableLink> links;
    for (int i = 0; i < 30; ++i)
      links.push_back(
          cable(static_cast<int>(random() % 4), "e0", 4 + static_cast<int>(random() % 4), "e1"));
    for (const Addressed& each : give_addresses(hosts, links)) {
      for (const Network& network : taken) EXPECT_FALSE(network.overlaps(each.a.base()));
      EXPECT_EQ(each.a.base(), each.b.base());
      EXPECT_NE(each.a.address, each.b.address);
      taken.push_back(each.a.base());
    }
  }
}

TEST(GiveAddresses, KeepsThoseThatFit) {
  std::vector<HostFacts> hosts = hosts_of(2);
  hosts[0].interfaces[0] = interface_of("e0", "10.0.0.1/24");
  hosts[1].interfaces[0] = interface_of("e0", "10.0.0.2/24");
  const std::vector<CableLink> links = {cable(0, "e0", 1, "e0")};
  EXPECT_TRUE(give_addresses(hosts, links)[0].keeps);
  EXPECT_THAT(setup_steps(hosts, give_addresses(hosts, links)), IsEmpty());
  // With two interfaces in one network, routing would use one of them for both.
  hosts[0].interfaces[1] = interface_of("e1", "10.0.0.3/24");
  EXPECT_FALSE(give_addresses(hosts, links)[0].keeps);
}

TEST(SetupSteps, FitTheSystemOfEachHostAndCanBeUndone) {
  std::vector<HostFacts> hosts = hosts_of(2);
  hosts[1].system = System::macos;
  hosts[1].is_root = false;
  hosts[1].interfaces[0].bridge = "bridge0";
  hosts[0].interfaces[0].up = false;
  const std::vector<CableLink> links = {cable(0, "e0", 1, "e0")};
  std::vector<std::string> texts;
  for (const SetupStep& step : setup_steps(hosts, give_addresses(hosts, links)))
    texts.push_back(step.command + " / " + step.undo);
  EXPECT_THAT(
      texts,
      ElementsAre("ip link set e0 up / ip link set e0 down",
                  "ip addr add 192.168.0.1/30 dev e0 / ip addr del 192.168.0.1/30 dev e0",
                  "sudo ifconfig bridge0 down / sudo ifconfig bridge0 up",
                  "sudo ifconfig e0 inet 192.168.0.2 netmask 255.255.255.252 alias / sudo ifconfig "
                  "e0 inet 192.168.0.2 -alias",
                  "sudo route -n add -host 192.168.0.1 -interface e0 / sudo route -n delete -host "
                  "192.168.0.1"));
}

TEST(SetupSteps, UseOnlyExistingInterfaces) {
  const std::vector<HostFacts> hosts = hosts_of(2);
  const std::vector<CableLink> links = {cable(0, "e0", 1, "e0; reboot")};
  const auto given = give_addresses(hosts, links);
  EXPECT_THROW(setup_steps(hosts, given), Error);
}

TEST(TopologyChoice, ReportsTooManyHosts) {
  const std::vector<HostFacts> hosts = hosts_of(200);
  const TopologyChoice choice = choose_cables(hosts, {}, "");
  EXPECT_EQ(choice.shape, Topology::none);
  EXPECT_THAT(choice.findings.at(0).what, HasSubstr("200 hosts"));
}

TEST(TopologyChoice, UsesARingAndIgnoresOtherCables) {
  const std::vector<HostFacts> hosts = hosts_of(4);
  const std::vector<CableLink> links = {cable(0, "e0", 2, "e0"), cable(2, "e1", 1, "e0"),
                                        cable(1, "e1", 3, "e0"), cable(0, "e1", 3, "e1"),
                                        cable(0, "e2", 2, "e2")};
  const TopologyChoice choice = choose_cables(hosts, links, "");
  EXPECT_EQ(choice.backend, "ring");
  EXPECT_THAT(choice.order, ElementsAre(0, 2, 1, 3));
  const std::vector<Addressed> given = give_addresses(hosts, choice.links);
  const auto entries = entries_of(hosts, choice, given, std::vector<std::string>(4));
  // Each entry has the host's address on the cable from the previous host. The address is repeated
  // for the number of cables of the pair with the most cables.
  EXPECT_THAT(entries[1].ips, ElementsAre("192.168.0.2", "192.168.0.18"));
  EXPECT_EQ(entries[2].ips.size(), 2U);
}

TEST(TopologyChoice, JacclUsesAsManyDevicesPerPairAsThePairWithTheFewest) {
  for (const int cables_of_others : {1, 2}) {
    std::vector<HostFacts> hosts = hosts_of(3);
    for (HostFacts& host : hosts) {
      host.interfaces.push_back(interface_of("e4"));
      for (Interface& interface : host.interfaces) interface.rdma = "rdma_" + interface.name;
    }
    std::vector<CableLink> links = {cable(0, "e0", 1, "e0"), cable(0, "e1", 1, "e1"),
                                    cable(0, "e2", 1, "e2")};
    for (int i = 0; i < cables_of_others; ++i) {
      links.push_back(cable(1, "e" + std::to_string(3 + i), 2, "e" + std::to_string(i)));
      links.push_back(cable(2, "e" + std::to_string(3 + i), 0, "e" + std::to_string(3 + i)));
    }
    const TopologyChoice choice = choose_cables(hosts, links, "jaccl-ring");
    ASSERT_EQ(choice.backend, "jaccl-ring");
    const auto entries =
        entries_of(hosts, choice, give_addresses(hosts, choice.links), std::vector<std::string>(3));
    for (const HostfileEntry& entry : entries) {
      for (const auto& devices : entry.rdma) {
        if (devices.is_null()) continue;
        EXPECT_EQ(devices.is_string(), cables_of_others == 1) << devices;
        EXPECT_EQ(devices.size(), static_cast<std::size_t>(cables_of_others)) << devices;
      }
    }
  }
}

TEST(TopologyChoice, MayBeALineForMccl) {
  const std::vector<HostFacts> hosts = hosts_of(3);
  const std::vector<CableLink> line = {cable(0, "e0", 1, "e0"), cable(1, "e1", 2, "e0")};
  EXPECT_EQ(choose_cables(hosts, line, "").shape, Topology::any);
  const TopologyChoice ring = choose_cables(hosts, line, "ring");
  EXPECT_EQ(ring.shape, Topology::none);
  EXPECT_THAT(ring.findings.at(0).cure, HasSubstr("from a to c"));
}

}  // namespace
}  // namespace mccl::cluster
