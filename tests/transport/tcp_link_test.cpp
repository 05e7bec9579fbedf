#include <cerrno>

#include "transport/link_conformance.h"
#include "transport/tcp/link.h"
#include "transport/tcp/listener.h"

namespace mccl::transport {
namespace {

using tcp::Address;
using tcp::Listener;
using tcp::Socket;

std::pair<Socket, Socket> connected_sockets(const std::string& host) {
  Listener listener(*Address::parse_numeric(host, 0), 0);
  Socket near = Socket::stream(listener.address().family());
  const int error = tcp::start_connect(near, listener.address(), nullptr);
  if (error != 0 && error != EINPROGRESS)
    throw Error("connect to " + host + ": " + tcp::describe_errno(error));
  pollfd waiting = {listener.descriptor(), POLLIN, 0};
  EXPECT_GT(::poll(&waiting, 1, 20'000), 0);
  tcp::Accepted accepted = listener.accept();
  pollfd connecting = {near.descriptor(), POLLOUT, 0};
  EXPECT_GT(::poll(&connecting, 1, 20'000), 0);
  EXPECT_EQ(near.take_error(), 0);
  tcp::tune_stream(near);
  return {std::move(near), std::move(accepted.socket)};
}

LinkPair connected(const std::string& host) {
  auto [near, far] = connected_sockets(host);
  return {std::make_unique<tcp::TcpLink>(std::move(near), "rank 1"),
          std::make_unique<tcp::TcpLink>(std::move(far), "rank 0")};
}

INSTANTIATE_TEST_SUITE_P(Tcp, LinkConformance,
                         testing::Values(LinkFactory{"ipv4", [] { return connected("127.0.0.1"); }},
                                         LinkFactory{"ipv6", [] { return connected("::1"); }}),
                         [](const auto& info) { return info.param.name; });

TEST(TcpLink, ASmallPeekLeavesTheRestForRead) {
  auto [a, b] = connected("127.0.0.1");
  const Bytes sent(200'000, std::byte{7});
  std::size_t written = 0;
  std::size_t most = 0;
  while (written < sent.size()) {
    written += a->write(std::span(sent).subspan(written));
    most = std::max(most, b->peek(64).size());
  }
  EXPECT_GE(most, 64u);
  EXPECT_LE(most, std::size_t{16} << 10);
}

TEST(TcpLink, AResetSaysSo) {
  auto [near, far] = connected_sockets("127.0.0.1");
  tcp::TcpLink link(std::move(near), "rank 5");
  const linger abort_on_close = {1, 0};
  ::setsockopt(far.descriptor(), SOL_SOCKET, SO_LINGER, &abort_on_close, sizeof abort_on_close);
  far.close();
  pollfd entry = {link.descriptor(), POLLIN, 0};
  ASSERT_GT(::poll(&entry, 1, 20'000), 0);
  try {
    link.peek(1);
    FAIL() << "no error";
  } catch (const LinkClosed& closed) {
    const std::string message = closed.what();
    EXPECT_NE(message.find("rank 5"), std::string::npos) << message;
    EXPECT_NE(message.find("reset"), std::string::npos) << message;
    EXPECT_NE(message.find(link.description()), std::string::npos) << message;
  }
}

TEST(TcpLink, DescribesBothEnds) {
  auto [near, far] = connected_sockets("::1");
  const std::string expected = "tcp " + near.local().text() + " -> " + near.remote().text();
  EXPECT_EQ(tcp::TcpLink(std::move(near), "rank 1").description(), expected);
  EXPECT_NE(expected.find("[::1]:"), std::string::npos);
}

}  // namespace
}  // namespace mccl::transport
