#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "mccl/error.h"
#include "transport/tcp/address.h"
#include "transport/tcp/interfaces.h"
#include "transport/tcp/listener.h"

namespace mccl::transport::tcp {
namespace {

TEST(Address, KnowsItsText) {
  EXPECT_EQ(Address::parse_numeric("10.0.0.1", 80)->text(), "10.0.0.1:80");
  EXPECT_EQ(Address::parse_numeric("fd00::1", 80)->text(), "[fd00::1]:80");
  EXPECT_EQ(Address::parse_numeric("fd00:0:0::1", 80)->host(), "fd00::1");
  EXPECT_EQ(Address::parse_numeric("10.0.0.1", 80)->with_port(81).port(), 81);
  EXPECT_EQ(Address::parse_numeric("fd00::1", 80)->with_port(81).port(), 81);
  EXPECT_EQ(Address().text(), "(none):0");
}

TEST(Address, MappedAddressesAreIPv4) {
  const auto mapped = Address::parse_numeric("::ffff:10.0.0.1", 80);
  ASSERT_TRUE(mapped);
  EXPECT_EQ(mapped->family(), AF_INET);
  EXPECT_EQ(*mapped, *Address::parse_numeric("10.0.0.1", 80));
}

TEST(Address, OnlyNumbersAreNumeric) {
  for (const char* text :
       {"", "node1", "10.0.0", "10.0.0.256", "10.0.0.1 ", "10.0.0.1%lo", "fd00::g", "[fd00::1]",
        "fe80::1%", "fe80::1%no-such-interface", "fe80::1%0"})
    EXPECT_FALSE(Address::parse_numeric(text, 1)) << text;
  EXPECT_FALSE(Address::parse_numeric(std::string(1000, '1'), 1));
}

TEST(Address, ScopeIdsSurvive) {
  const auto scoped = Address::parse_numeric("fe80::1%lo", 1);
  if (!scoped) GTEST_SKIP() << "no interface named lo";
  EXPECT_EQ(scoped->host(), "fe80::1%lo");
  EXPECT_FALSE(scoped->same_host(*Address::parse_numeric("fe80::1", 1)));
}

TEST(Address, KnowsItsKind) {
  const auto kind = [](const char* text) { return *Address::parse_numeric(text, 1); };
  EXPECT_TRUE(kind("127.9.9.9").is_loopback() && kind("::1").is_loopback());
  EXPECT_FALSE(kind("128.0.0.1").is_loopback() || kind("::2").is_loopback());
  EXPECT_TRUE(kind("169.254.1.1").is_link_local() && kind("fe80::1").is_link_local());
  EXPECT_FALSE(kind("169.253.1.1").is_link_local() || kind("fd00::1").is_link_local());
  EXPECT_TRUE(kind("0.0.0.0").is_wildcard() && kind("::").is_wildcard());
  EXPECT_FALSE(kind("0.0.0.1").is_wildcard() || kind("::1").is_wildcard());
}

TEST(Address, RefusesOtherFamiliesAndShortAddresses) {
  sockaddr_storage raw = {};
  raw.ss_family = AF_UNIX;
  EXPECT_FALSE(Address::from(reinterpret_cast<sockaddr*>(&raw), sizeof raw));
  raw.ss_family = AF_INET6;
  EXPECT_FALSE(Address::from(reinterpret_cast<sockaddr*>(&raw), sizeof(sockaddr_in)));
  EXPECT_FALSE(Address::from(nullptr, 0));
}

TEST(HostPort, AcceptsNamesAndBothFamilies) {
  EXPECT_EQ(parse_host_port("10.0.0.1:80").host, "10.0.0.1");
  EXPECT_EQ(parse_host_port("node-1.lab:65535").port, 65535);
  EXPECT_EQ(parse_host_port("[fe80::1%eth0]:80").host, "fe80::1%eth0");
}

TEST(HostPort, RefusesInvalidText) {
  for (const char* text :
       {"", "node1", ":80", "[]:80", "node1:", "node1:-1", "node1:+1", "node1:1x", "node1:65536",
        "node1:0", "http://node1:80", "fd00::1:80", "[fd00::1]", "[fd00::1:80", "a[b]:80"})
    EXPECT_THROW(parse_host_port(text), InvalidArgument) << text;
  EXPECT_THROW(parse_host_port(std::string(1000, 'a') + ":80"), InvalidArgument);
}

TEST(Resolve, FindsNumbersAndNames) {
  EXPECT_EQ(resolve("10.0.0.1", 80).front().text(), "10.0.0.1:80");
  for (const Address& address : resolve("localhost", 80)) {
    EXPECT_TRUE(address.is_loopback());
    EXPECT_EQ(address.port(), 80);
  }
  EXPECT_THROW(resolve("no-such-host.invalid", 80), InvalidArgument);
}

TEST(Interfaces, LoopbackIsThere) {
  bool found = false;
  for (const InterfaceAddress& each : list_interfaces())
    found = found || (each.loopback && each.up && each.address.host() == "127.0.0.1");
  EXPECT_TRUE(found);
}

TEST(Interfaces, ComparesSubnetsByTheirPrefix) {
  const auto reaches = [](const char* own, int bits, const char* other) {
    return InterfaceAddress{"x", *Address::parse_numeric(own, 0), bits, true, false}.reaches(
        *Address::parse_numeric(other, 0));
  };
  EXPECT_TRUE(reaches("10.1.2.3", 24, "10.1.2.200"));
  EXPECT_FALSE(reaches("10.1.2.3", 24, "10.1.3.3"));
  EXPECT_TRUE(reaches("10.1.2.3", 23, "10.1.3.3"));
  EXPECT_FALSE(reaches("10.1.2.3", 32, "10.1.2.2"));
  EXPECT_TRUE(reaches("fd00::1", 64, "fd00::ffff:1"));
  EXPECT_FALSE(reaches("fd00::1", 64, "fd00:0:0:1::1"));
  EXPECT_FALSE(reaches("10.1.2.3", 24, "fd00::1"));
}

TEST(Route, LoopbackLeavesFromLoopback) {
  const auto source = route_source(*Address::parse_numeric("127.0.0.1", 80));
  ASSERT_TRUE(source);
  EXPECT_EQ(source->host(), "127.0.0.1");
}

TEST(HostIdentity, IsStableAndOneWord) {
  EXPECT_EQ(host_identity(), host_identity());
  EXPECT_FALSE(host_identity().empty());
  EXPECT_EQ(host_identity().find_first_of(" \n\t"), std::string::npos);
}

TEST(Socket, ClosesItselfOnce) {
  Socket first = Socket::stream(AF_INET);
  const int descriptor = first.descriptor();
  Socket second = std::move(first);
  EXPECT_FALSE(first);
  EXPECT_EQ(second.descriptor(), descriptor);
  second = Socket();
  EXPECT_EQ(::fcntl(descriptor, F_GETFD), -1);
}

TEST(Socket, IsNotInherited) {
  const Socket socket = Socket::stream(AF_INET);
  EXPECT_TRUE(::fcntl(socket.descriptor(), F_GETFD) & FD_CLOEXEC);
  EXPECT_TRUE(::fcntl(socket.descriptor(), F_GETFL) & O_NONBLOCK);
}

TEST(Socket, DetectsASelfConnection) {
  // Uses a port that was just free as both source and destination.
  const Address address = Listener(*Address::parse_numeric("127.0.0.1", 0), 0).address();
  const Socket socket = Socket::stream(AF_INET);
  ASSERT_EQ(::bind(socket.descriptor(), address.data(), address.size()), 0);
  const int error = start_connect(socket, address, nullptr);
  ASSERT_TRUE(error == 0 || error == EINPROGRESS) << describe_errno(error);
  EXPECT_TRUE(is_self_connected(socket));
}

TEST(Socket, ReportsTheGrantedBuffers) {
  const Socket socket = Socket::stream(AF_INET);
  EXPECT_EQ(set_buffer_bytes(socket, 0), 0u);
  EXPECT_EQ(set_buffer_bytes(socket, 64 << 10), std::size_t{64} << 10);
}

TEST(Socket, HalvesABufferUntilTheSystemAcceptsIt) {
  std::vector<std::size_t> asked;
  const auto at_most = [&asked](std::size_t limit) {
    return [&asked, limit](std::size_t bytes) {
      asked.push_back(bytes);
      return bytes <= limit;
    };
  };
  EXPECT_EQ(largest_taken(32 << 20, at_most(7 << 20)), std::size_t{4} << 20);
  EXPECT_EQ(asked, (std::vector<std::size_t>{32 << 20, 16 << 20, 8 << 20, 4 << 20}));
  asked.clear();
  EXPECT_EQ(largest_taken(1 << 20, at_most(1 << 20)), std::size_t{1} << 20);
  EXPECT_EQ(asked.size(), 1u);
  EXPECT_EQ(largest_taken(1 << 20, at_most(0)), 0u);
}

TEST(Listener, AcceptsWithoutBlocking) {
  Listener listener(*Address::parse_numeric("127.0.0.1", 0), 0);
  EXPECT_GT(listener.address().port(), 0);
  const Accepted nobody = listener.accept();
  EXPECT_FALSE(nobody.socket);
  EXPECT_EQ(nobody.error, 0);
}

TEST(Listener, ReportsWhyItCannotBind) {
  const Listener first(*Address::parse_numeric("127.0.0.1", 0), 0);
  try {
    Listener second(first.address(), 0);
    FAIL() << "two listeners on one port";
  } catch (const BindError& error) {
    EXPECT_EQ(error.code, EADDRINUSE);
    EXPECT_THAT(error.what(), ::testing::HasSubstr(first.address().text()));
  }
  try {
    Listener elsewhere(*Address::parse_numeric("203.0.113.7", 0), 0);
    FAIL() << "listens on an address of another host";
  } catch (const BindError& error) {
    EXPECT_EQ(error.code, EADDRNOTAVAIL);
  }
}

}  // namespace
}  // namespace mccl::transport::tcp
