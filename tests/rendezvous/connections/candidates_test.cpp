// Tests the order of the addresses by which a peer is dialed, best first.
#include "rendezvous/connections/candidates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>

#include "transport/tcp/listener.h"

namespace mccl::rendezvous {
namespace {

using transport::tcp::Address;
using transport::tcp::BindError;
using transport::tcp::InterfaceAddress;
using transport::tcp::Listener;
using transport::tcp::Medium;

bool has_ipv6() {
  try {
    Listener probe(*Address::parse_numeric("::1", 0), 0);
    return true;
  } catch (const BindError&) {
    return false;
  }
}

std::vector<std::string> texts(const std::vector<Candidate>& candidates) {
  std::vector<std::string> all;
  for (const Candidate& candidate : candidates) all.push_back(candidate.text());
  return all;
}

TEST(Candidates, TheSameHostIsReachedOverLoopbackFirst) {
  const std::vector<InterfaceAddress> interfaces = transport::tcp::list_interfaces();
  const Endpoint self = {0, "here", 1000, {"10.0.0.1"}, false};
  Endpoint peer = {1, "here", 1001, {"127.0.0.9"}, false};
  EXPECT_EQ(texts(candidates_for(peer, self, {}, interfaces)).front(), "127.0.0.1:1001");
  peer.listed = true;
  EXPECT_THAT(texts(candidates_for(peer, self, {}, interfaces)),
              ::testing::ElementsAre("127.0.0.9:1001"));
  peer.listed = false;
  peer.host = "there";
  EXPECT_THAT(texts(candidates_for(peer, self, {}, interfaces)),
              ::testing::ElementsAre("127.0.0.9:1001"));
}

TEST(Candidates, TriesAnAddressOfThisHostLastForAnotherHost) {
  const std::vector<InterfaceAddress> interfaces = transport::tcp::list_interfaces();
  const auto wired =
      std::find_if(interfaces.begin(), interfaces.end(), [](const InterfaceAddress& each) {
        return each.up && !each.loopback && each.address.family() == AF_INET &&
               each.prefix_bits < 31;
      });
  if (wired == interfaces.end()) GTEST_SKIP() << "no network beside loopback";
  const std::string ours = wired->address.host();
  std::string neighbour = ours;
  neighbour.back() = neighbour.back() == '2' ? '3' : '2';
  const Endpoint self = {0, "here", 1000, {ours}, false};
  const Endpoint peer = {1, "there", 1001, {ours, "127.0.0.1", neighbour}, false};
  EXPECT_THAT(texts(candidates_for(peer, self, {}, interfaces)),
              ::testing::ElementsAre(neighbour + ":1001", ours + ":1001", "127.0.0.1:1001"));
}

TEST(Candidates, PairsTheAddressesOfRailsInTurn) {
  const std::vector<InterfaceAddress> interfaces = transport::tcp::list_interfaces();
  const Endpoint self = {0, "here", 1000, {"127.0.0.1", "127.0.0.2"}, true};
  const Endpoint peer = {1, "here", 1001, {"127.0.0.3", "127.0.0.4", "127.0.0.5"}, true};
  const auto first = [&](int rail) {
    return texts(candidates_for(peer, self, {rail, 3}, interfaces)).front();
  };
  EXPECT_EQ(first(0), "127.0.0.3:1001 from 127.0.0.1");
  EXPECT_EQ(first(1), "127.0.0.4:1001 from 127.0.0.2");
  EXPECT_EQ(first(2), "127.0.0.5:1001 from 127.0.0.1");
  EXPECT_EQ(first(3), "127.0.0.3:1001 from 127.0.0.2");
  EXPECT_EQ(candidates_for(peer, self, {0, 3}, interfaces).size(), 4u);
}

TEST(Candidates, ALinkLocalAddressOfARailIsReachedThroughTheRailsInterface) {
  // A number as the name of an interface is the scope itself, so that the test needs no interface.
  const auto cable = [](const char* name, const char* address) {
    return InterfaceAddress{name, *Address::parse_numeric(address, 0), 64, true, false};
  };
  const std::vector<InterfaceAddress> interfaces = {cable("9001", "fe80::1%9001"),
                                                    cable("9002", "fe80::2%9002")};
  Endpoint self = {0, "here", 1000, {"fe80::1%9001", "fe80::2%9002"}, true};
  const Endpoint peer = {1, "there", 1001, {"fe80::8%eth1", "fe80::9%eth2"}, true};
  const auto source = [&](const Address&) { return std::optional(interfaces[0].address); };
  const auto ways = [&](int rail) {
    return texts(candidates_for(peer, self, {rail, 2}, interfaces, source));
  };
  EXPECT_EQ(ways(0).front(), "[fe80::8%9001]:1001 from fe80::1%9001");
  EXPECT_EQ(ways(1).front(), "[fe80::9%9002]:1001 from fe80::2%9002");
  EXPECT_THAT(ways(1), ::testing::Contains("[fe80::8%9001]:1001"));
  self.listed = false;
  EXPECT_EQ(ways(1).front(), "[fe80::9%9001]:1001");
}

TEST(Candidates, ALinkLocalAddressIsTriedOnOurInterfaces) {
  const Endpoint self = {0, "here", 1000, {"10.0.0.1"}, false};
  const Endpoint peer = {1, "there", 1001, {"fe80::7%en5"}, true};
  const InterfaceAddress local = {"lo", *Address::parse_numeric("fe80::1", 0), 64, true, false};
  if (!has_ipv6()) GTEST_SKIP() << "no IPv6 here";
  EXPECT_THAT(texts(candidates_for(peer, self, {}, {local})),
              ::testing::ElementsAre("[fe80::7%lo]:1001"));
  EXPECT_TRUE(candidates_for(peer, self, {}, {}).empty());
}

// The tests below use a simulated host with given routes.

constexpr Medium kThunderbolt = {Medium::Kind::cable, 40'000, 1500};
constexpr Medium kEthernet = {Medium::Kind::cable, 1000, 1500};
constexpr Medium kWifi = {Medium::Kind::wireless, 2400, 1500};

InterfaceAddress through(const char* name, const char* address, int prefix, Medium medium) {
  return {name, *Address::parse_numeric(address, 0), prefix, true, false, true, medium};
}

/// Chooses the source address as the kernel does: by subnet, or else by the default route.
RouteSource routes(const std::vector<InterfaceAddress>& interfaces, const std::string& by_default) {
  return [=](const Address& to) -> std::optional<Address> {
    for (const InterfaceAddress& each : interfaces) {
      if (each.reaches(to)) return each.address;
    }
    return Address::parse_numeric(by_default, 0);
  };
}

std::vector<std::string> ways(const std::vector<std::string>& published,
                              const std::vector<InterfaceAddress>& interfaces,
                              const std::string& by_default = "192.168.1.5") {
  const Endpoint self = {0, "here", 1000, {"192.168.1.5"}, false};
  const Endpoint peer = {1, "there", 7, published, false};
  return texts(candidates_for(peer, self, {}, interfaces, routes(interfaces, by_default)));
}

TEST(Ways, AnUnconfiguredCableIsBetterThanWifi) {
  EXPECT_THAT(
      ways({"192.168.1.9", "169.254.8.8"}, {through("en0", "192.168.1.5", 24, kWifi),
                                            through("bridge0", "169.254.3.7", 16, kThunderbolt)}),
      ::testing::ElementsAre("169.254.8.8:7", "192.168.1.9:7"));
}

TEST(Ways, TheFasterOfTwoCablesIsBetter) {
  EXPECT_THAT(ways({"192.168.1.9", "10.0.0.9"}, {through("eth0", "192.168.1.5", 24, kEthernet),
                                                 through("eth1", "10.0.0.5", 24, kThunderbolt)}),
              ::testing::ElementsAre("10.0.0.9:7", "192.168.1.9:7"));
}

TEST(Ways, TheSameSubnetIsBetterThanAnySpeed) {
  EXPECT_THAT(ways({"203.0.113.9", "192.168.1.9"},
                   {through("wlan0", "192.168.1.5", 24, kWifi),
                    through("eth1", "10.0.0.5", 24, kThunderbolt)},
                   "10.0.0.5"),
              ::testing::ElementsAre("192.168.1.9:7", "203.0.113.9:7"));
}

TEST(Ways, ThroughOneInterfaceAConfiguredAddressIsBetter) {
  EXPECT_THAT(ways({"169.254.8.8", "192.168.1.9"}, {through("eth0", "192.168.1.5", 24, kEthernet),
                                                    through("eth0", "169.254.3.7", 16, kEthernet)}),
              ::testing::ElementsAre("192.168.1.9:7", "169.254.8.8:7"));
}

TEST(Ways, EqualRoutesKeepThePeersOrder) {
  const std::vector<InterfaceAddress> one = {through("eth0", "192.168.1.5", 24, kEthernet)};
  EXPECT_THAT(ways({"192.168.1.9", "192.168.1.8"}, one),
              ::testing::ElementsAre("192.168.1.9:7", "192.168.1.8:7"));
  EXPECT_THAT(ways({"192.168.1.8", "192.168.1.9"}, one),
              ::testing::ElementsAre("192.168.1.8:7", "192.168.1.9:7"));
}

/// Returns the candidates that rank equal to the first one.
std::vector<std::string> equals(const std::vector<std::string>& published,
                                const std::vector<InterfaceAddress>& interfaces,
                                bool same_host = false) {
  const Endpoint self = {0, "here", 1000, {"192.168.1.5"}, false};
  const Endpoint peer = {1, same_host ? "here" : "there", 7, published, false};
  std::vector<std::string> found;
  for (const Candidate& each :
       candidates_for(peer, self, {}, interfaces, routes(interfaces, "192.168.1.5")))
    if (each.equals_first) found.push_back(each.interface + " " + each.text());
  return found;
}

TEST(Ways, EqualRoutesUseDifferentInterfaces) {
  const InterfaceAddress eth0 = through("eth0", "192.168.1.5", 24, kEthernet);
  const InterfaceAddress eth1 = through("eth1", "10.0.0.5", 24, kEthernet);
  const InterfaceAddress wifi = through("wlan0", "10.9.0.5", 24, kWifi);
  const std::vector<std::string> published = {"192.168.1.9", "192.168.1.8", "10.9.0.9", "10.0.0.9"};
  EXPECT_THAT(equals(published, {eth0, eth1, wifi}), ::testing::ElementsAre("eth1 10.0.0.9:7"));
  EXPECT_THAT(ways(published, {eth0, eth1, wifi}),
              ::testing::ElementsAre("192.168.1.9:7", "10.0.0.9:7", "192.168.1.8:7", "10.9.0.9:7"));
  EXPECT_TRUE(equals(published, {eth0, eth1, wifi}, true).empty());
  EXPECT_TRUE(equals(published, {eth0, wifi}).empty());
  EXPECT_TRUE(equals(published, {eth0, through("eth1", "10.0.0.5", 24, kThunderbolt)}).empty());
  EXPECT_TRUE(equals({"192.168.1.9"}, {eth0, eth1}).empty());
}

TEST(Ways, SkipsLinkLocalAddressesOfContainers) {
  if (!has_ipv6()) GTEST_SKIP() << "no IPv6 here";
  InterfaceAddress veth = through("lo", "fe80::1", 64, {Medium::Kind::software, 0, 1500});
  EXPECT_TRUE(ways({"fe80::7%en5"}, {veth}).empty());
  veth.medium = kEthernet;
  EXPECT_THAT(ways({"fe80::7%en5"}, {veth}), ::testing::ElementsAre("[fe80::7%lo]:7"));
}

}  // namespace
}  // namespace mccl::rendezvous
