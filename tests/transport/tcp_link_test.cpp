#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <thread>

#include "transport/link_conformance.h"
#include "transport/tcp/link.h"
#include "transport/tcp_pair.h"

namespace mccl::transport {
namespace {

using tcp::connected_sockets;

LinkPair connected(const std::string& host) {
  auto [near, far] = connected_sockets(host);
  return {std::make_unique<tcp::TcpLink>(std::move(near), "rank 1"),
          std::make_unique<tcp::TcpLink>(std::move(far), "rank 0")};
}

/// Fails every third call with ENOBUFS, as macOS does when it has no memory for the data.
ssize_t send_when_there_is_memory(int socket, const msghdr* message, int flags) {
  thread_local int calls = 0;
  if (++calls % 3 != 0) return ::sendmsg(socket, message, flags);
  errno = ENOBUFS;
  return -1;
}

INSTANTIATE_TEST_SUITE_P(Tcp, LinkConformance,
                         ::testing::Values(LinkFactory{"ipv4",
                                                       [] { return connected("127.0.0.1"); }},
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

TEST(TcpLink, ReportsAReset) {
  auto [near, far] = connected_sockets("127.0.0.1");
  tcp::TcpLink link(std::move(near), "rank 5");
  tcp::reset_when_closed(far);
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

int refusals_left = 0;
int sends = 0;
ssize_t refuse_at_first(int socket, const msghdr* message, int flags) {
  ++sends;
  if (refusals_left == 0) return ::sendmsg(socket, message, flags);
  --refusals_left;
  errno = ENOBUFS;
  return -1;
}

TEST(TcpLink, WaitsWhileTheSystemLacksMemoryAndWarnsOnce) {
  auto [near, far] = connected_sockets("127.0.0.1");
  std::vector<std::string> said;
  tcp::TcpLink link(std::move(near), "rank 5",
                    {.warn = [&said](const std::string& text) { said.push_back(text); },
                     .send = refuse_at_first});
  const Bytes bytes(100, std::byte{1});
  sends = 0;
  refusals_left = 2;
  EXPECT_EQ(link.write(bytes), 0u);
  const Clock::time_point retry = link.retry_at();
  ASSERT_NE(retry, Clock::time_point::max());
  while (Clock::now() < retry) {
    const int before = sends;
    const std::size_t written = link.write(bytes);
    if (Clock::now() < retry) {
      EXPECT_EQ(written, 0u);
      EXPECT_EQ(sends, before) << "asked the system again before it was time";
    }
  }
  std::size_t written = 0;
  while (written == 0) written = link.write(bytes);
  EXPECT_EQ(written, bytes.size());
  EXPECT_EQ(sends, 3);
  EXPECT_EQ(link.retry_at(), Clock::time_point::max());
  refusals_left = 1;
  EXPECT_EQ(link.write(bytes), 0u);
  ASSERT_EQ(said.size(), 1u);
  EXPECT_NE(said[0].find("rank 5"), std::string::npos) << said[0];
  EXPECT_NE(said[0].find("no memory"), std::string::npos) << said[0];
}

TEST(TcpLink, AllBytesArriveInOrderWhereMemoryIsShort) {
  auto [near, far] = connected_sockets("127.0.0.1");
  tcp::TcpLink from(std::move(near), "rank 1", {.send = send_when_there_is_memory});
  tcp::TcpLink to(std::move(far), "rank 0");
  Bytes sent(std::size_t{1} << 20);
  for (std::size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<std::byte>(i * 7 + i / 251);
  Bytes got(sent.size());
  std::size_t written = 0;
  std::size_t read = 0;
  while (read < got.size()) {
    written += from.write(std::span(sent).subspan(written));
    read += to.read(std::span(got).subspan(read));
  }
  EXPECT_EQ(got, sent);
}

/// The reader's window is full, and its host still answers every probe.
TEST(TcpLink, ALateReaderStillAcknowledges) {
  auto [a, b] = connected("127.0.0.1");
  const Bytes sent(1 << 20, std::byte{7});
  const auto end = Clock::now() + std::chrono::milliseconds(700);
  while (Clock::now() < end) {
    a->write(sent);
    EXPECT_EQ(a->unacknowledged_for(), std::nullopt);
  }
  EXPECT_GT(a->unsent(), 0u);
}

/// Leaves it to the test to replace a broken connection.
struct NoRepairer : tcp::Repairer {
  bool begin(tcp::TcpLink&, const std::string&) noexcept override { return true; }
  void suspect(tcp::TcpLink&) noexcept override {}
  void forget(const tcp::TcpLink&) noexcept override {}
};

/// The message that a peer has destroyed its group may arrive before the last data of that group,
/// if the connection that carries the data breaks.
TEST(TcpLink, IsRepairedAlsoIfThePeerHasDestroyedItsGroup) {
  struct Counting : NoRepairer {
    bool begin(tcp::TcpLink&, const std::string&) noexcept override { return ++begun > 0; }
    int begun = 0;
  };
  for (const Loss loss : {Loss::left, Loss::reported}) {
    auto [near, far] = connected_sockets("127.0.0.1");
    const auto repairer = std::make_shared<Counting>();
    tcp::TcpLink link(std::move(near), "rank 1", {.repairer = repairer});
    link.lose_peer(loss);
    const linger none{.l_onoff = 1, .l_linger = 0};  // closes by a reset
    ASSERT_EQ(::setsockopt(far.descriptor(), SOL_SOCKET, SO_LINGER, &none, sizeof none), 0);
    { const tcp::Socket reset = std::move(far); }
    std::array<std::byte, 1> byte{};
    const auto read = [&] {
      while (repairer->begun == 0 && link.read(byte) == 0) std::this_thread::yield();
    };
    if (loss == Loss::left) {
      EXPECT_NO_THROW(read());
    } else {
      EXPECT_THROW(read(), LinkClosed);
    }
    EXPECT_EQ(repairer->begun, loss == Loss::left ? 1 : 0);
  }
}

/// A relay may lose bytes that its host has acknowledged.
TEST(TcpLink, ARelayedLinkSendsAgainWhatThePeerHasNotReceived) {
  auto [near, relay] = connected_sockets("127.0.0.1");
  tcp::TcpLink link(std::move(near), "rank 1",
                    {.repairer = std::make_shared<NoRepairer>(), .is_relayed = true});
  Bytes message(100'000);
  for (std::size_t i = 0; i < message.size(); ++i) message[i] = static_cast<std::byte>(i * 7 >> 3);
  const Bytes copy = message;
  Bytes taken(message.size());
  for (std::size_t written = 0; written < message.size();) {
    written += link.write(std::span(message).subspan(written));
    (void)relay.receive(taken);
  }
  while (link.unsent() > 0) (void)relay.receive(taken);
  link.received_by_peer(30'000);
  link.release();
  std::ranges::fill(message, std::byte{0});
  EXPECT_THROW(link.received_by_peer(100'001), CorruptionError);

  link.pause();
  EXPECT_EQ(link.close_connection(), 0u);
  auto [new_near, peer] = connected_sockets("127.0.0.1");
  constexpr std::size_t kReceived = 40'000;
  link.resume(std::move(new_near), kReceived);
  Bytes rest;
  while (rest.size() < copy.size() - kReceived) {
    (void)link.send_again();
    const std::size_t got = peer.receive(taken).bytes;
    rest.insert(rest.end(), taken.begin(), taken.begin() + static_cast<std::ptrdiff_t>(got));
  }
  EXPECT_TRUE(std::equal(rest.begin(), rest.end(), copy.begin() + kReceived, copy.end()));
}

TEST(TcpLink, ARelayedLinkKeepsABoundedNumberOfBytes) {
  auto [near, relay] = connected_sockets("127.0.0.1");
  tcp::TcpLink link(std::move(near), "rank 1",
                    {.repairer = std::make_shared<NoRepairer>(), .is_relayed = true});
  const Bytes message(1'000'000);
  Bytes taken(message.size());
  std::size_t most = 0;
  for (std::size_t sent = 0; sent < std::size_t{200} << 20;) {
    const std::size_t written = link.write(message);
    link.release();
    sent += written;
    most = std::max(most, link.buffer_bytes());
    (void)relay.receive(taken);
  }
  EXPECT_LE(most, std::size_t{130} << 20);  // The size of the buffer is a power of two.
}

/// A peer that sends without end must not fill the memory of a rank that replaces the connection.
TEST(TcpLink, AClosingConnectionTakesABoundedNumberOfBytes) {
  auto [near, far] = connected_sockets("127.0.0.1");
  tcp::TcpLink link(std::move(near), "rank 1", {.repairer = std::make_shared<NoRepairer>()});
  std::thread peer([&far = far] {
    const Bytes block(1 << 20);
    tcp::TransferResult sent;
    do {
      sent = far.send(block);
    } while (sent.error == 0 || sent.error == EAGAIN);
  });
  pollfd waiting = {link.descriptor(), POLLIN, 0};
  EXPECT_EQ(::poll(&waiting, 1, 20'000), 1);
  link.pause();
  const tcp::StreamOffset received = link.close_connection();
  EXPECT_GT(received, 0u);
  EXPECT_LE(received, (std::size_t{64} << 20) + (std::size_t{64} << 10));
  peer.join();
}

TEST(TcpLink, DescribesBothEnds) {
  auto [near, far] = connected_sockets("::1");
  const std::string expected = "tcp " + near.local().text() + " -> " + near.remote().text();
  EXPECT_EQ(tcp::TcpLink(std::move(near), "rank 1").description(), expected);
  EXPECT_NE(expected.find("[::1]:"), std::string::npos);
}

TEST(TcpLink, NamesTheHostOfThePeerInItsErrors) {
  auto [near, far] = connected_sockets("127.0.0.1");
  tcp::TcpLink link(std::move(near), "rank 1", {.peer_host = "desk"});
  { const tcp::Socket closed = std::move(far); }
  std::array<std::byte, 1> byte{};
  try {
    while (link.read(byte) == 0) {
    }
    FAIL() << "the peer sends nothing";
  } catch (const LinkClosed& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("lost the connection to rank 1: "));
    EXPECT_THAT(error.what(), ::testing::HasSubstr(", host desk)"));
  }
}

}  // namespace
}  // namespace mccl::transport
