#include "rendezvous/binding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "mccl/error.h"
#include "rendezvous/candidates.h"
#include "rendezvous/mesh_job.h"

namespace mccl::rendezvous {
namespace {

using testing::HasSubstr;
using testing::Not;
using transport::tcp::Address;
using transport::tcp::BindError;
using transport::tcp::Interface;
using transport::tcp::Listener;

Binding bind_with(const Config& config, int rank = 0, Reach reach = Reach::any_host) {
  return bind_listeners(config, rank, reach, transport::tcp::list_interfaces(),
                        Log(rank, LogLevel::off));
}

std::string refusal_of(const Config& config, int rank = 0) {
  try {
    bind_with(config, rank);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was refused";
  return {};
}

bool has_ipv6() {
  try {
    Listener probe(*Address::parse_numeric("::1", 0), 0);
    return true;
  } catch (const BindError&) {
    return false;
  }
}

TEST(Binding, PortIsBasePlusRank) {
  const Binding first = bind_with(loopback_config());
  ASSERT_GT(first.endpoint.port, 3);
  Config config = loopback_config("127.0.0.2");
  config.port_base = first.endpoint.port - 3;
  const Binding second = bind_with(config, 3);
  EXPECT_EQ(second.endpoint.port, first.endpoint.port);
  EXPECT_EQ(second.endpoint.rank, 3);
}

bool listens_at_loopback(const Binding& binding) {
  return binding.listeners.size() == 1 && binding.listeners[0].address().is_loopback();
}

TEST(Binding, AJobOfOneHostIsOpenToNoOther) {
  Config config;
  config.port_base = 0;
  const Binding alone = bind_with(config, 0, Reach::this_host);
  EXPECT_TRUE(listens_at_loopback(alone));
  EXPECT_EQ(alone.endpoint.addresses.size(), 1u);
  EXPECT_FALSE(alone.endpoint.listed);
  EXPECT_FALSE(listens_at_loopback(bind_with(config, 0, Reach::any_host)));
  config.listen_addr = "0.0.0.0";
  EXPECT_FALSE(listens_at_loopback(bind_with(config, 0, Reach::this_host))) << "it was told to";
}

TEST(Binding, ATakenPortSaysWhatToSet) {
  const Binding taken = bind_with(loopback_config());
  Config config = loopback_config();
  config.port_base = taken.endpoint.port;
  const std::string message = refusal_of(config);
  EXPECT_THAT(message, HasSubstr("MCCL_PORT_BASE"));
  EXPECT_THAT(message, HasSubstr(std::to_string(taken.endpoint.port)));
  EXPECT_THAT(message, HasSubstr("another program"));
  // Taken on one address means taken on all of them.
  config.listen_addr.clear();
  EXPECT_THAT(refusal_of(config), HasSubstr("MCCL_PORT_BASE"));
}

TEST(Binding, MasterPortIsLeftToTorch) {
  Config config = loopback_config();
  config.port_base = 29499;
  config.master_port = 29500;
  const std::string message = refusal_of(config, 1);
  EXPECT_THAT(message, HasSubstr("MASTER_PORT"));
  EXPECT_THAT(message, HasSubstr("MCCL_PORT_BASE"));
  EXPECT_THAT(message, HasSubstr("29500"));
}

TEST(Binding, PortsEndAt65535) {
  Config config = loopback_config();
  config.port_base = 65535;
  EXPECT_THAT(refusal_of(config, 1), HasSubstr("MCCL_PORT_BASE"));
}

TEST(Binding, PortBaseZeroFindsAPortForAllAddresses) {
  std::set<int> ports;
  std::vector<Binding> held;
  for (int i = 0; i < 20; ++i) {
    held.push_back(bind_with(loopback_config("127.0.0.1,127.0.0.2,127.0.0.3")));
    ASSERT_EQ(held.back().listeners.size(), 3u);
    for (const Listener& listener : held.back().listeners)
      EXPECT_EQ(listener.address().port(), held.back().endpoint.port);
    ports.insert(held.back().endpoint.port);
  }
  EXPECT_EQ(ports.size(), held.size());
}

TEST(Binding, TheWildcardPublishesInterfaces) {
  Config config;
  config.port_base = 0;
  const Binding binding = bind_with(config);
  ASSERT_EQ(binding.listeners.size(), 1u);
  EXPECT_TRUE(binding.listeners[0].address().is_wildcard());
  EXPECT_FALSE(binding.endpoint.listed);
  ASSERT_FALSE(binding.endpoint.addresses.empty());
  for (const std::string& text : binding.endpoint.addresses) {
    const auto address = Address::parse_numeric(text, 0);
    ASSERT_TRUE(address) << text;
    EXPECT_FALSE(address->is_wildcard());
    if (binding.endpoint.addresses.size() > 2) {
      EXPECT_FALSE(address->is_loopback()) << text;
    }
  }
  EXPECT_EQ(parse_endpoint(serialise(binding.endpoint)), binding.endpoint);
}

TEST(Binding, LoopbackIsPublishedOnlyAlone) {
  const auto interface_of = [](const char* name, const char* address, bool up, bool loopback,
                               bool carrier = true) {
    return Interface{name, *Address::parse_numeric(address, 0), 24, up, loopback, carrier};
  };
  Config config;
  config.port_base = 0;
  const auto published = [&](std::vector<Interface> interfaces) {
    return bind_listeners(config, 0, Reach::any_host, interfaces, Log(0, LogLevel::off))
        .endpoint.addresses;
  };
  const Interface lo = interface_of("lo", "127.0.0.1", true, true);
  EXPECT_THAT(published({lo}), testing::ElementsAre("127.0.0.1"));
  EXPECT_THAT(
      published(
          {lo, interface_of("z", "10.9.0.1", true, false, false),
           interface_of("a", "10.1.0.1", true, false), interface_of("b", "10.2.0.1", false, false),
           interface_of("c", "fe80::1", true, false), interface_of("d", "169.254.1.1", true, false),
           interface_of("e", "fd00::1", true, false)}),
      testing::ElementsAre("10.1.0.1", "fd00::1", "10.9.0.1", "169.254.1.1"));
  EXPECT_THROW(published({}), InvalidArgument);
}

TEST(Binding, ListedAddressesAreBoundAsTheyStand) {
  const Binding binding = bind_with(loopback_config("127.0.0.1, 127.0.0.2"));
  EXPECT_EQ(binding.listeners.size(), 2u);
  EXPECT_TRUE(binding.endpoint.listed);
  EXPECT_THAT(binding.endpoint.addresses, testing::ElementsAre("127.0.0.1", "127.0.0.2"));
  EXPECT_TRUE(bind_with(loopback_config("localhost")).endpoint.listed);
}

TEST(Binding, AWildcardThatIsListedIsNoRail) {
  const Binding binding = bind_with(loopback_config("0.0.0.0"));
  EXPECT_FALSE(binding.endpoint.listed);
  EXPECT_EQ(binding.listeners[0].address().host(), "0.0.0.0");
  for (const std::string& text : binding.endpoint.addresses)
    EXPECT_EQ(text.find(':'), std::string::npos) << "IPv6 is not listened to";
  EXPECT_THROW(bind_with(loopback_config("0.0.0.0,127.0.0.1")), InvalidArgument);
}

TEST(Binding, WhatThisHostHasNotIsRefused) {
  EXPECT_THAT(refusal_of(loopback_config("203.0.113.7")), HasSubstr("no address of this host"));
  EXPECT_THAT(refusal_of(loopback_config("203.0.113.7")), HasSubstr("lo ("));
  EXPECT_THAT(refusal_of(loopback_config("no-such-host.invalid")),
              HasSubstr("no-such-host.invalid"));
  EXPECT_THAT(refusal_of(loopback_config("127.0.0.1,127.0.0.1")), HasSubstr("twice"));
  Config config = loopback_config("");
  config.ifname = "nosuch0";
  const std::string message = refusal_of(config);
  EXPECT_THAT(message, HasSubstr("nosuch0"));
  EXPECT_THAT(message, HasSubstr("MCCL_IFNAME"));
  EXPECT_THAT(message, HasSubstr("lo (127.0.0.1"));
}

TEST(Binding, Fault33InterfacesNarrowTheAddresses) {
  Config config = loopback_config("");
  config.ifname = "lo";
  const Binding binding = bind_with(config);
  EXPECT_FALSE(binding.endpoint.listed);
  EXPECT_THAT(binding.endpoint.addresses, testing::Contains("127.0.0.1"));
  for (const Listener& listener : binding.listeners)
    EXPECT_TRUE(listener.address().is_loopback()) << listener.address().text();
  config.listen_addr = "127.0.0.1";
  EXPECT_EQ(bind_with(config).listeners.size(), 1u);
}

TEST(Binding, Fault33AnAddressOutsideTheInterfacesIsRefused) {
  const Interface lo = {"lo", *Address::parse_numeric("127.0.0.1", 0), 8, true, true};
  const Interface other = {"eth9", *Address::parse_numeric("10.1.0.1", 0), 24, true, false};
  Config config = loopback_config();
  config.ifname = "eth9";
  try {
    bind_listeners(config, 0, Reach::any_host, {lo, other}, Log(0, LogLevel::off));
    FAIL() << "nothing was refused";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("MCCL_IFNAME"));
    EXPECT_THAT(error.what(), HasSubstr("127.0.0.1"));
  }
}

TEST(Binding, BuffersFollowTheLinkProfile) {
  Config config;
  EXPECT_EQ(socket_buffer_bytes(config), 0u);
  config.link_profile = "ethernet";
  EXPECT_EQ(socket_buffer_bytes(config), 0u);
  config.link_profile = "thunderbolt";
  EXPECT_EQ(socket_buffer_bytes(config), std::size_t{4} << 20);
  config.socket_buffer_bytes = 12345;
  EXPECT_EQ(socket_buffer_bytes(config), 12345u);
}

// Ways to a peer.

std::vector<std::string> texts(const std::vector<Candidate>& candidates) {
  std::vector<std::string> all;
  for (const Candidate& candidate : candidates) all.push_back(candidate.text());
  return all;
}

TEST(Candidates, TheSameHostIsReachedOverLoopbackFirst) {
  const std::vector<Interface> interfaces = transport::tcp::list_interfaces();
  const Endpoint self = {0, "here", 1000, {"10.0.0.1"}, false};
  Endpoint peer = {1, "here", 1001, {"127.0.0.9"}, false};
  EXPECT_EQ(texts(candidates_for(peer, self, {}, interfaces)).front(), "127.0.0.1:1001");
  peer.listed = true;
  EXPECT_THAT(texts(candidates_for(peer, self, {}, interfaces)),
              testing::ElementsAre("127.0.0.9:1001"));
  peer.listed = false;
  peer.host = "there";
  EXPECT_THAT(texts(candidates_for(peer, self, {}, interfaces)),
              testing::ElementsAre("127.0.0.9:1001"));
}

TEST(Candidates, AnAddressThatIsOursLeadsToAnotherHostLast) {
  const std::vector<Interface> interfaces = transport::tcp::list_interfaces();
  const auto wired = std::find_if(interfaces.begin(), interfaces.end(), [](const Interface& each) {
    return each.up && !each.loopback && each.address.family() == AF_INET && each.prefix_bits < 31;
  });
  if (wired == interfaces.end()) GTEST_SKIP() << "no network beside loopback";
  const std::string ours = wired->address.host();
  std::string neighbour = ours;
  neighbour.back() = neighbour.back() == '2' ? '3' : '2';
  const Endpoint self = {0, "here", 1000, {ours}, false};
  const Endpoint peer = {1, "there", 1001, {ours, "127.0.0.1", neighbour}, false};
  EXPECT_THAT(texts(candidates_for(peer, self, {}, interfaces)),
              testing::ElementsAre(neighbour + ":1001", ours + ":1001", "127.0.0.1:1001"));
}

TEST(Candidates, RailsPairAddressesInTurn) {
  const std::vector<Interface> interfaces = transport::tcp::list_interfaces();
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

TEST(Candidates, ALinkLocalAddressIsTriedOnOurInterfaces) {
  const Endpoint self = {0, "here", 1000, {"10.0.0.1"}, false};
  const Endpoint peer = {1, "there", 1001, {"fe80::7%en5"}, true};
  const Interface local = {"lo", *Address::parse_numeric("fe80::1", 0), 64, true, false};
  if (!has_ipv6()) GTEST_SKIP() << "no IPv6 here";
  EXPECT_THAT(texts(candidates_for(peer, self, {}, {local})),
              testing::ElementsAre("[fe80::7%lo]:1001"));
  EXPECT_TRUE(candidates_for(peer, self, {}, {}).empty());
}

// The same through whole meshes.

TEST(MeshBinding, TwoListedAddressesAreTwoRails) {
  Job job(2, loopback_config("127.0.0.1,127.0.0.2"));
  job.exchange_endpoints();
  ASSERT_EQ(job[0].mesh->rails(1), 2);
  ASSERT_EQ(job[1].mesh->rails(0), 2);
  for (std::uint8_t rail : {0, 1})
    job[0].mesh->dial(1, {7, transport::Purpose::collective, rail}, in(seconds(20)));
  ASSERT_NO_FATAL_FAILURE(job.drive_until([&] { return job.event_count() == 4; }));
  for (const MeshEvent& event : job[0].events) {
    const std::string host = event.key.rail == 0 ? "127.0.0.1:" : "127.0.0.2:";
    ASSERT_TRUE(event.link) << event.reason;
    EXPECT_THAT(event.link->description(), HasSubstr("tcp " + host));
    EXPECT_THAT(event.link->description(), HasSubstr("-> " + host));
  }
}

TEST(MeshBinding, RailsAreTheLargerNumberOnBothSides) {
  Job job(3, loopback_config());
  job.join(1, loopback_config("127.0.0.1,127.0.0.2,127.0.0.3"));
  Config wildcard;
  wildcard.port_base = 0;
  job.join(2, wildcard);
  job.exchange_endpoints();
  EXPECT_EQ(job[0].mesh->rails(1), 3);
  EXPECT_EQ(job[1].mesh->rails(0), 3);
  EXPECT_EQ(job[1].mesh->rails(2), 3);
  EXPECT_EQ(job[2].mesh->rails(1), 3);
  EXPECT_EQ(job[0].mesh->rails(2), 1);
  EXPECT_EQ(job[2].mesh->rails(0), 1);
  for (std::uint8_t rail : {0, 1, 2}) {
    job[0].mesh->dial(1, {7, transport::Purpose::collective, rail}, in(seconds(20)));
    job[2].mesh->dial(1, {7, transport::Purpose::collective, rail}, in(seconds(20)));
  }
  ASSERT_NO_FATAL_FAILURE(job.drive_until([&] { return job.event_count() == 12; }));
  for (int rank : {0, 1, 2}) {
    for (const MeshEvent& event : job[rank].events) EXPECT_TRUE(event.link) << event.reason;
  }
}

TEST(MeshBinding, ARailWhoseOwnPathFailsTakesAnother) {
  Job job(2, loopback_config("127.0.0.1,127.0.0.2"));
  std::vector<Endpoint> endpoints = job.endpoints();
  endpoints[1].addresses[1] = "127.0.0.77";  // Nobody listens there.
  job[0].mesh->set_endpoints(endpoints);
  job[0].mesh->dial(1, {7, transport::Purpose::collective, 1}, in(seconds(20)));
  ASSERT_NO_FATAL_FAILURE(job.drive_until([&] { return job.event_count() == 2; }));
  ASSERT_TRUE(job[0].events[0].link) << job[0].events[0].reason;
  EXPECT_THAT(job[0].events[0].link->description(), HasSubstr("-> 127.0.0.1:"));
}

TEST(MeshBinding, Fault24IPv6Works) {
  if (!has_ipv6()) GTEST_SKIP() << "no IPv6 here";
  Job job(2, loopback_config("::1"));
  job.exchange_endpoints();
  job[1].mesh->dial(0, {}, in(seconds(20)));
  ASSERT_NO_FATAL_FAILURE(job.drive_until([&] { return job.event_count() == 2; }));
  EXPECT_THAT(job[1].event_of(0)->link->description(), HasSubstr("-> [::1]:"));
}

TEST(MeshBinding, TheWildcardIsReachedOverBothFamilies) {
  Config wildcard;
  wildcard.port_base = 0;
  Job job(2, wildcard);
  std::vector<Endpoint> endpoints = job.endpoints();
  const std::uint16_t port = endpoints[1].port;
  for (const char* host : {"127.0.0.1", "::1"}) {
    if (std::string(host) == "::1" && !has_ipv6()) continue;
    job.join(0, wildcard);
    endpoints[0] = job[0].mesh->endpoint();
    endpoints[1].addresses = {host};
    endpoints[1].listed = true;
    job[0].mesh->set_endpoints(endpoints);
    job[1].events.clear();
    job[0].mesh->dial(1, {}, in(seconds(20)));
    ASSERT_NO_FATAL_FAILURE(job.drive_until([&] { return job.event_count() == 2; }));
    EXPECT_THAT(job[0].event_of(1)->link->description(),
                HasSubstr("-> " + Address::parse_numeric(host, port)->text()));
  }
}

}  // namespace
}  // namespace mccl::rendezvous
