#include "rendezvous/connections/binding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "mccl/error.h"
#include "rendezvous/meeting/mesh_job.h"

namespace mccl::rendezvous {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using transport::LinkKey;
using transport::tcp::Address;
using transport::tcp::BindError;
using transport::tcp::InterfaceAddress;
using transport::tcp::Listener;
using transport::tcp::Medium;

BoundListeners bind_with(const Config& config, int rank = 0, Reach reach = Reach::any_host) {
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

TEST(Binding, PortIsBasePlusRank) {
  const BoundListeners first = bind_with(loopback_config());
  ASSERT_GT(first.endpoint.port, 3);
  Config config = loopback_config("127.0.0.2");
  config.port_base = first.endpoint.port - 3;
  const BoundListeners second = bind_with(config, 3);
  EXPECT_EQ(second.endpoint.port, first.endpoint.port);
  EXPECT_EQ(second.endpoint.rank, 3);
}

bool listens_at_loopback(const BoundListeners& binding) {
  return binding.listeners.size() == 1 && binding.listeners[0].address().is_loopback();
}

TEST(Binding, AJobOfOneHostListensOnlyOnLoopback) {
  Config config;
  config.port_base = 0;
  const BoundListeners alone = bind_with(config, 0, Reach::this_host);
  EXPECT_TRUE(listens_at_loopback(alone));
  EXPECT_EQ(alone.endpoint.addresses.size(), 1u);
  EXPECT_FALSE(alone.endpoint.listed);
  EXPECT_FALSE(listens_at_loopback(bind_with(config, 0, Reach::any_host)));
  config.listen_addr = "0.0.0.0";
  EXPECT_FALSE(listens_at_loopback(bind_with(config, 0, Reach::this_host))) << "listen_addr is set";
}

TEST(Binding, TheErrorOfATakenPortNamesTheSetting) {
  const BoundListeners taken = bind_with(loopback_config());
  Config config = loopback_config();
  config.port_base = taken.endpoint.port;
  const std::string message = refusal_of(config);
  EXPECT_THAT(message, HasSubstr("MCCL_PORT_BASE"));
  EXPECT_THAT(message, HasSubstr(std::to_string(taken.endpoint.port)));
  EXPECT_THAT(message, HasSubstr("another program"));
  // A port that is taken on one address is taken for the wildcard address too.
  config.listen_addr.clear();
  EXPECT_THAT(refusal_of(config), HasSubstr("MCCL_PORT_BASE"));
}

/// Returns the rank whose default port is `taken`.
int rank_at(const BoundListeners& taken) { return taken.endpoint.port - Config{}.port_base; }

TEST(Binding, ReplacesATakenDefaultPortByAFreeOne) {
  const BoundListeners taken = bind_with(loopback_config());
  ASSERT_GT(rank_at(taken), 0) << "the system gives ports below MCCL_PORT_BASE";
  Config config;
  config.listen_addr = "127.0.0.1";
  ::testing::internal::CaptureStderr();
  const BoundListeners beside =
      bind_listeners(config, rank_at(taken), Reach::any_host, transport::tcp::list_interfaces(),
                     Log(rank_at(taken), LogLevel::info));
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(beside.endpoint.port, taken.endpoint.port);
  EXPECT_EQ(beside.endpoint.port, beside.listeners[0].address().port());
  EXPECT_THAT(said, HasSubstr("port " + std::to_string(taken.endpoint.port)));
  EXPECT_THAT(said, HasSubstr("MCCL_PORT_BASE"));
}

TEST(Binding, RefusesATakenPortThatWasSetExplicitly) {
  const BoundListeners taken = bind_with(loopback_config());
  ASSERT_GT(rank_at(taken), 0);
  Config config;
  config.set("listen_addr", "127.0.0.1");
  config.set("port_base", std::to_string(Config{}.port_base));
  EXPECT_THAT(refusal_of(config, rank_at(taken)), HasSubstr("another program"));
}

TEST(Binding, LeavesMasterPortToTorch) {
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
  std::vector<BoundListeners> held;
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
  const BoundListeners binding = bind_with(config);
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

TEST(Binding, PublishesLoopbackOnlyIfThereIsNothingElse) {
  const auto interface_of = [](const char* name, const char* address, bool up, bool loopback,
                               bool carrier = true) {
    return InterfaceAddress{name, *Address::parse_numeric(address, 0), 24, up, loopback, carrier};
  };
  Config config;
  config.port_base = 0;
  const auto published = [&](std::vector<InterfaceAddress> interfaces) {
    return bind_listeners(config, 0, Reach::any_host, interfaces, Log(0, LogLevel::off))
        .endpoint.addresses;
  };
  const InterfaceAddress lo = interface_of("lo", "127.0.0.1", true, true);
  EXPECT_THAT(published({lo}), ::testing::ElementsAre("127.0.0.1"));
  EXPECT_THAT(
      published(
          {lo, interface_of("z", "10.9.0.1", true, false, false),
           interface_of("a", "10.1.0.1", true, false), interface_of("b", "10.2.0.1", false, false),
           interface_of("c", "fe80::1", true, false), interface_of("d", "169.254.1.1", true, false),
           interface_of("e", "fd00::1", true, false)}),
      ::testing::ElementsAre("10.1.0.1", "fd00::1", "fe80::1", "169.254.1.1", "10.9.0.1"));
  EXPECT_THROW(published({}), InvalidArgument);
}

/// Makes an interface with one address that is up and has a carrier.
InterfaceAddress through(const char* name, const char* address, Medium medium) {
  return {name, *Address::parse_numeric(address, 0), 24, true, false, true, medium};
}

constexpr Medium kThunderbolt = {Medium::Kind::cable, 40'000, 1500};
constexpr Medium kEthernet = {Medium::Kind::cable, 1000, 1500};
constexpr Medium kWifi = {Medium::Kind::wireless, 2400, 1500};
constexpr Medium kContainers = {Medium::Kind::software, 0, 1500};

BoundListeners bind_on(const std::vector<InterfaceAddress>& interfaces, Config config = {},
                       LogLevel level = LogLevel::off) {
  config.port_base = 0;
  return bind_listeners(config, 0, Reach::any_host, interfaces, Log(0, level));
}

TEST(Binding, PublishesAnUnconfiguredCableBeforeWifi) {
  const InterfaceAddress wifi = through("en0", "192.168.1.5", kWifi);
  const InterfaceAddress bridge = through("bridge0", "169.254.3.7", kThunderbolt);
  const InterfaceAddress ethernet = through("en5", "10.1.0.1", kEthernet);
  EXPECT_THAT(bind_on({wifi, bridge, ethernet}).endpoint.addresses,
              ::testing::ElementsAre("169.254.3.7", "10.1.0.1", "192.168.1.5"));
}

TEST(Binding, PublishesIPv6LinkLocalAddressesOnlyOfCablesWithoutOthers) {
  EXPECT_THAT(bind_on({through("en0", "192.168.1.5", kWifi), through("en0", "fe80::1", kWifi),
                       through("thunderbolt0", "fe80::2", kThunderbolt),
                       through("en5", "10.1.0.1", kEthernet), through("en5", "fe80::3", kEthernet),
                       through("veth1", "fe80::4", kContainers)})
                  .endpoint.addresses,
              ::testing::ElementsAre("fe80::2", "10.1.0.1", "192.168.1.5"));
}

TEST(Binding, PublishesContainerBridgesLast) {
  EXPECT_THAT(bind_on({through("docker0", "172.17.0.1", kContainers),
                       through("wlan0", "192.168.1.5", kWifi)})
                  .endpoint.addresses,
              ::testing::ElementsAre("192.168.1.5", "172.17.0.1"));
}

TEST(Binding, InfoSaysWhereItListensAndWhatWasTaken) {
  ::testing::internal::CaptureStderr();
  const BoundListeners binding = bind_on(
      {through("wlan0", "192.168.1.5", kWifi), through("bridge0", "169.254.3.7", kThunderbolt)}, {},
      LogLevel::info);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("listens at " + binding.listeners[0].address().text() + ";"));
  EXPECT_THAT(said, HasSubstr("best first: 169.254.3.7 (bridge0 40 Gbit/s MTU 1500), 192.168.1.5 "
                              "(wlan0 wireless 2.4 Gbit/s MTU 1500)"));
}

TEST(Binding, BindsListedAddressesInOrder) {
  const BoundListeners binding = bind_with(loopback_config("127.0.0.1, 127.0.0.2"));
  EXPECT_EQ(binding.listeners.size(), 2u);
  EXPECT_TRUE(binding.endpoint.listed);
  EXPECT_THAT(binding.endpoint.addresses, ::testing::ElementsAre("127.0.0.1", "127.0.0.2"));
  EXPECT_TRUE(bind_with(loopback_config("localhost")).endpoint.listed);
}

TEST(Binding, AnAddressListedTwiceHasTwoRails) {
  const BoundListeners binding = bind_with(loopback_config("127.0.0.1,127.0.0.2,127.0.0.1"));
  EXPECT_THAT(binding.endpoint.addresses,
              ::testing::ElementsAre("127.0.0.1", "127.0.0.2", "127.0.0.1"));
  EXPECT_EQ(binding.listeners.size(), 2U);
}

TEST(Binding, AListedWildcardIsNotARail) {
  const BoundListeners binding = bind_with(loopback_config("0.0.0.0"));
  EXPECT_FALSE(binding.endpoint.listed);
  EXPECT_EQ(binding.listeners[0].address().host(), "0.0.0.0");
  for (const std::string& text : binding.endpoint.addresses)
    EXPECT_EQ(text.find(':'), std::string::npos)
        << "an IPv6 address was published without a listener";
  EXPECT_THROW(bind_with(loopback_config("0.0.0.0,127.0.0.1")), InvalidArgument);
}

TEST(Binding, RefusesAnAddressThatThisHostLacks) {
  EXPECT_THAT(refusal_of(loopback_config("203.0.113.7")), HasSubstr("not an address of this host"));
  EXPECT_THAT(refusal_of(loopback_config("lo")), HasSubstr("MCCL_IFNAME=lo"));
  EXPECT_THAT(refusal_of(loopback_config("203.0.113.7")),
              AllOf(HasSubstr("names \"203.0.113.7\", which is not an address of this host"),
                    HasSubstr("lo ("), HasSubstr("give one of these, or unset MCCL_LISTEN_ADDR")));
  EXPECT_THAT(refusal_of(loopback_config("127.0.0.1:5000")),
              AllOf(HasSubstr("MCCL_LISTEN_ADDR: "), HasSubstr("MCCL_PORT_BASE sets the port"),
                    HasSubstr("lo (")));
  EXPECT_THAT(refusal_of(loopback_config("no-such-host.invalid")),
              HasSubstr("no-such-host.invalid"));
  Config config = loopback_config("");
  config.ifname = "nosuch0";
  const std::string message = refusal_of(config);
  EXPECT_THAT(message, HasSubstr("nosuch0"));
  EXPECT_THAT(message, HasSubstr("MCCL_IFNAME"));
  EXPECT_THAT(message, HasSubstr("lo (127.0.0.1"));
}

TEST(Binding, PublishesOnlyAddressesOfTheNamedInterfaces) {
  Config config = loopback_config("");
  config.ifname = "lo";
  const BoundListeners binding = bind_with(config);
  EXPECT_FALSE(binding.endpoint.listed);
  EXPECT_THAT(binding.endpoint.addresses, ::testing::Contains("127.0.0.1"));
  for (const Listener& listener : binding.listeners)
    EXPECT_TRUE(listener.address().is_loopback()) << listener.address().text();
  config.listen_addr = "127.0.0.1";
  EXPECT_EQ(bind_with(config).listeners.size(), 1u);
}

TEST(Binding, RefusesAnAddressOutsideTheNamedInterfaces) {
  const InterfaceAddress lo = {"lo", *Address::parse_numeric("127.0.0.1", 0), 8, true, true};
  const InterfaceAddress other = {"eth9", *Address::parse_numeric("10.1.0.1", 0), 24, true, false};
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

}  // namespace
}  // namespace mccl::rendezvous
