// Tests the findings about paths between hosts, given the results of measurements.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "cluster/checks.h"

namespace mccl::cluster {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

HostFacts host_with(const std::string& name, const std::string& address) {
  HostFacts host;
  host.host = name;
  host.system = System::gnu_linux;
  Interface& cable = host.interfaces.emplace_back();
  cable.name = "eth0";
  cable.up = true;
  cable.mtu = 1500;
  cable.mbit_per_s = 10'000;
  cable.addresses = {*parse_network(address)};
  return host;
}

std::vector<HostFacts> two_hosts() {
  return {host_with("a", "10.0.0.1/24"), host_with("b", "10.0.0.2/24")};
}

/// Returns all paths, measured without faults.
std::vector<InterfacePath> good_paths(std::span<const HostFacts> hosts) {
  std::vector<InterfacePath> paths = paths_of(hosts);
  for (InterfacePath& path : paths) {
    path.tried = true;
    path.faults = {"", ""};
    path.packet = path.mtu;
    path.latency_s = 20e-6;
    path.bytes_per_s = 1.1e9;
  }
  return paths;
}

TEST(CheckPaths, FindsNothingIfAllPathsWork) {
  const auto hosts = two_hosts();
  EXPECT_THAT(good_paths(hosts), SizeIs(2));
  EXPECT_THAT(check_paths(hosts, good_paths(hosts), {}), IsEmpty());
}

TEST(CheckPaths, ComparesTheRateWithTheHardware) {
  const auto hosts = two_hosts();
  auto paths = good_paths(hosts);
  paths[0].bytes_per_s = 0.1e9;
  const auto findings = check_paths(hosts, paths, {});
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_THAT(findings[0].what, HasSubstr("800 Mbit/s, but its hardware supports 10 Gbit/s"));
}

/// Both cables are in one network, and one host answers through the other cable.
TEST(CheckPaths, NamesThePacketsThatRpFilterDrops) {
  auto hosts = two_hosts();
  for (HostFacts& host : hosts) {
    Interface second = host.interfaces.front();
    second.name = "eth1";
    second.addresses.front().address.bits += 10;
    host.interfaces.push_back(second);
    host.interfaces[0].rp_filter = host.interfaces[1].rp_filter = 1;
  }
  hosts[0].routes = {{*parse_network("10.0.0.0/24"), "eth0"}};
  hosts[1].routes = {{*parse_network("10.0.0.0/24"), "eth1"}};
  const Connectivity joined{.links = {{{0, "eth0"}, {1, "eth0"}}, {{0, "eth1"}, {1, "eth1"}}},
                            .networks = {}};
  auto paths = good_paths(hosts);
  for (InterfacePath& path : paths) path.faults = {"Connection timed out", ""};
  const auto dropped = [&] {
    const auto findings = check_paths(hosts, paths, joined);
    return std::ranges::count(findings, "return-path-filtered", &Finding::id);
  };
  EXPECT_EQ(dropped(), static_cast<std::ptrdiff_t>(paths.size()));
  const auto findings = check_paths(hosts, paths, joined);
  EXPECT_THAT(findings[0].what, HasSubstr("arrive at eth0, but answers leave through eth1"));
  EXPECT_THAT(findings[0].cure, HasSubstr("on b: sudo sysctl -w net.ipv4.conf.all.rp_filter=2"));
  // rp_filter is not the cause if a connection is refused, or if the check is loose.
  for (InterfacePath& path : paths) path.faults = {"Connection refused", ""};
  EXPECT_EQ(dropped(), 0);
  for (InterfacePath& path : paths) path.faults = {"Connection timed out", ""};
  for (HostFacts& host : hosts)
    for (Interface& interface : host.interfaces) interface.rp_filter = 2;
  EXPECT_EQ(dropped(), 0);
}

TEST(CheckPaths, FindsUnconnectedHosts) {
  const auto hosts = two_hosts();
  auto paths = good_paths(hosts);
  for (InterfacePath& path : paths) path.faults = {"Connection timed out", "Connection timed out"};
  const auto findings = check_paths(hosts, paths, {});
  ASSERT_THAT(findings, SizeIs(3));
  EXPECT_THAT(findings[2].what, HasSubstr("2 groups that no connection joins"));
}

TEST(CheckPaths, DoesNotReportUntriedPathsAsBroken) {
  const auto hosts = two_hosts();
  EXPECT_THAT(check_paths(hosts, paths_of(hosts), {}), IsEmpty());
}

TEST(Paths, AreRoutedWithoutACommonNetwork) {
  const std::vector<HostFacts> hosts = {host_with("a", "10.0.1.1/24"),
                                        host_with("b", "10.0.2.1/32")};
  auto paths = good_paths(hosts);
  ASSERT_THAT(paths, SizeIs(2));
  EXPECT_TRUE(paths[0].routed);
  EXPECT_EQ(paths[0].target, "10.0.2.1");
  EXPECT_THAT(check_paths(hosts, paths, {}), IsEmpty());
  for (InterfacePath& path : paths) path.faults = {"Connection timed out", "Connection timed out"};
  const auto findings = check_paths(hosts, paths, {});
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_THAT(findings[0].what, HasSubstr("2 groups that no connection joins"));
}

/// Makes hosts without IPv4 addresses.
std::vector<HostFacts> hosts_of_ipv6(const std::string& one, const std::string& other) {
  auto hosts = two_hosts();
  for (HostFacts& host : hosts) host.interfaces[0].addresses.clear();
  if (!one.empty()) hosts[0].interfaces[0].addresses = {*parse_network(one)};
  if (!other.empty()) hosts[1].interfaces[0].addresses = {*parse_network(other)};
  return hosts;
}

TEST(Paths, IncludeIpv6) {
  const auto hosts = hosts_of_ipv6("fd00:1::1/64", "fd00:1::2/64");
  auto paths = good_paths(hosts);
  ASSERT_THAT(paths, SizeIs(2));
  EXPECT_EQ(paths[0].source, "fd00:1::1");
  EXPECT_EQ(paths[0].target, "fd00:1::2");
  EXPECT_FALSE(paths[0].routed);
  EXPECT_THAT(check_paths(hosts, paths, {}), IsEmpty());
  paths[0].faults = {"Connection timed out", "Connection timed out"};
  const auto findings = check_paths(hosts, paths, {});
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_THAT(findings[0].cure, HasSubstr("ip6 saddr fd00:1::1 tcp dport"));
  const auto apart = good_paths(hosts_of_ipv6("fd00:1::1/64", "fd00:2::2/64"));
  ASSERT_THAT(apart, SizeIs(2));
  EXPECT_TRUE(apart[0].routed);
}

TEST(CheckPaths, TreatsHostsThatHearEachOtherAsConnected) {
  const auto hosts = hosts_of_ipv6("", "");
  Connectivity joined;
  joined.links.push_back({{0, "eth0"}, {1, "eth0"}, InterfaceKind::cable, 0, false});
  EXPECT_THAT(check_paths(hosts, {}, joined), IsEmpty());
  EXPECT_THAT(check_paths(hosts, {}, {}), SizeIs(1));  // the hosts form two parts
}

TEST(CheckAddressing, AcceptsIpv6Addresses) {
  Connectivity joined;
  joined.links.push_back({{0, "eth0"}, {1, "eth0"}, InterfaceKind::cable, 0, false});
  EXPECT_THAT(check_addressing(hosts_of_ipv6("fd00:1::1/64", "fd00:1::2/64"), joined), IsEmpty());
  const auto one = check_addressing(hosts_of_ipv6("fd00:1::1/64", ""), joined);
  ASSERT_THAT(one, SizeIs(1));
  EXPECT_THAT(one[0].what, HasSubstr("a cable has an address at a (eth0) and none at b (eth0)"));
  const auto apart = check_addressing(hosts_of_ipv6("fd00:1::1/64", "fd00:2::2/64"), joined);
  ASSERT_THAT(apart, SizeIs(1));
  EXPECT_THAT(apart[0].what, HasSubstr("different networks: fd00:1::1/64 and fd00:2::2/64"));
  EXPECT_THAT(check_addressing(hosts_of_ipv6("", ""), joined).at(0).what,
              HasSubstr("a cable has no addresses"));
}

TEST(CheckHostfile, AcceptsIpv6Addresses) {
  auto hosts = hosts_of_ipv6("fd00:1::1/64", "");
  hosts.resize(1);
  hosts[0].interfaces[0].kind = InterfaceKind::wireless;
  Interface& cable = hosts[0].interfaces.emplace_back();
  cable.name = "eth1";
  cable.up = true;
  cable.addresses = {*parse_network("10.0.0.1/24")};
  const std::vector<std::vector<std::string>> given = {{"FD00:1:0::1", "fd00:9::9", "fe80::1%x"}};
  const auto findings = check_hostfile(hosts, given);
  ASSERT_THAT(findings, SizeIs(1));  // hosts report only lasting addresses
  EXPECT_THAT(findings[0].what,
              HasSubstr("which is eth0 (Wi-Fi), although the host has a cable: eth1"));
}

TEST(Paths, AreBoundedForThousandsOfAddresses) {
  auto hosts = two_hosts();
  for (std::uint32_t i = 0; i < 5000; ++i)
    hosts[1].interfaces[0].addresses.push_back({{0x0A000100U + i % 200}, 24});
  EXPECT_LE(paths_of(hosts).size(), 128U);
}

TEST(PathTable, OfManyHostsShowsOnlyFaults) {
  std::vector<HostFacts> hosts;
  for (int i = 1; i <= 40; ++i)
    hosts.push_back(host_with(fmt::format("h{}", i), fmt::format("10.0.0.{}/24", i)));
  auto paths = good_paths(hosts);
  ASSERT_THAT(paths, SizeIs(40 * 39));
  paths[7].faults = {"Connection refused", ""};
  paths[8].packet = 1000;
  paths[9].bytes_per_s = 1e6;
  const std::string table = table_of(paths, hosts);
  EXPECT_EQ(std::ranges::count(table, '\n'), 5);
  EXPECT_THAT(table, HasSubstr("Connection refused"));
  EXPECT_THAT(table, HasSubstr("1000 of 1500"));
  EXPECT_THAT(table, HasSubstr("8 Mbit/s"));
  EXPECT_THAT(table, HasSubstr("1557 of 1560 paths are not shown; --json shows all paths"));
  for (InterfacePath& path : paths) path.tried = false;
  EXPECT_LT(std::ranges::count(table_of(paths, hosts), '\n'), 500);
  // A short table shows all paths.
  EXPECT_EQ(std::ranges::count(table_of(std::span(paths).first(30), hosts), '\n'), 31);
}

TEST(CheckPaths, NamesCommandsOfTheHostsOwnSystem) {
  auto hosts = two_hosts();
  hosts[0].system = System::macos;
  auto paths = good_paths(hosts);
  paths[0].packet = 1000;
  EXPECT_THAT(check_paths(hosts, paths, {}).at(0).cure, HasSubstr("sudo ifconfig eth0 mtu 1000"));
}

/// Returns a host with 10.0.0.1 on eth0, and 10.9.0.2 on the tunnel wg0.
HostFacts host_with_tunnel() {
  HostFacts host = host_with("a", "10.0.0.1/24");
  Interface& tunnel = host.interfaces.emplace_back();
  tunnel.name = "wg0";
  tunnel.up = true;
  tunnel.joins = true;
  tunnel.addresses = {*parse_network("10.9.0.2/24")};
  return host;
}

TEST(CheckHostfile, FindsAMisspeltInterface) {
  std::vector<HostFacts> hosts = {host_with_tunnel()};
  hosts[0].settings["MCCL_IFNAME"] = "wg0";
  const std::vector<std::vector<std::string>> none(1);
  const auto findings = check_hostfile(hosts, none);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_THAT(findings[0].what, HasSubstr("MCCL_IFNAME selects 10.9.0.2, which is wg0 (a tunnel"));
  // MCCL_IFNAME may be a list.
  hosts[0].settings["MCCL_IFNAME"] = "eth0, wg0";
  EXPECT_EQ(check_hostfile(hosts, none), findings);
}

TEST(CheckHostfile, FindsAListenAddressOfATunnel) {
  std::vector<HostFacts> hosts = {host_with_tunnel()};
  hosts[0].settings["MCCL_LISTEN_ADDR"] = "10.0.0.1,10.9.0.2,9.9.9.9";
  const std::vector<std::vector<std::string>> none(1);
  const auto findings = check_hostfile(hosts, none);
  ASSERT_THAT(findings, SizeIs(1));  // check_settings reports the unknown 9.9.9.9
  EXPECT_THAT(findings[0].what, HasSubstr("MCCL_LISTEN_ADDR selects 10.9.0.2, which is wg0"));
}

TEST(CheckHostfile, FindsWifiUsedInPlaceOfACable) {
  std::vector<HostFacts> hosts = {host_with("a", "10.0.0.1/24")};
  Interface& air = hosts[0].interfaces.emplace_back();
  air.name = "wlan0";
  air.up = true;
  air.kind = InterfaceKind::wireless;
  air.addresses = {*parse_network("192.168.1.7/24")};
  const std::vector<std::vector<std::string>> by_air = {{"192.168.1.7"}};
  const auto findings = check_hostfile(hosts, by_air);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_THAT(findings[0].what,
              HasSubstr("which is wlan0 (Wi-Fi), although the host has a cable: eth0"));
  const std::vector<std::vector<std::string>> by_cable = {{"10.0.0.1"}};
  EXPECT_THAT(check_hostfile(hosts, by_cable), IsEmpty());
}

}  // namespace
}  // namespace mccl::cluster
