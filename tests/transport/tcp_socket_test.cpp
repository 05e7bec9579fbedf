#include <gmock/gmock.h>
#include <netinet/tcp.h>

#include <array>

#include "transport/tcp/socket.h"
#include "transport/tcp_pair.h"

namespace mccl::transport::tcp {
namespace {

using std::chrono::milliseconds;

/// A link whose first connection is reset immediately dials this address.
TEST(Socket, KnowsItsPeerAfterTheConnectionWasReset) {
  auto [near, far] = connected_sockets("127.0.0.1");
  const Address expected = near.local();
  const linger reset = {.l_onoff = 1, .l_linger = 0};
  ASSERT_EQ(::setsockopt(near.descriptor(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset), 0);
  near.close();
  pollfd waiting = {far.descriptor(), POLLIN, 0};
  ASSERT_GT(::poll(&waiting, 1, 20'000), 0);
  std::array<std::byte, 1> byte;
  EXPECT_EQ(far.receive(byte).error, ECONNRESET);
  EXPECT_EQ(far.remote(), expected);
}

TEST(Shortage, BacksOffUntilAWriteSucceeds) {
  const Clock::time_point now = Clock::now();
  Shortage shortage;
  EXPECT_FALSE(shortage.lasts());
  EXPECT_EQ(shortage.retry_at(), Clock::time_point::max());
  EXPECT_TRUE(shortage.refused(now));
  EXPECT_TRUE(shortage.lasts());
  EXPECT_EQ(shortage.retry_at(), now + milliseconds(1));
  for (const int pause : {2, 4, 8, 16, 16}) {
    EXPECT_FALSE(shortage.refused(now));
    EXPECT_EQ(shortage.retry_at(), now + milliseconds(pause));
  }
  shortage.over();
  EXPECT_FALSE(shortage.lasts());
  EXPECT_EQ(shortage.retry_at(), Clock::time_point::max());
  EXPECT_TRUE(shortage.refused(now));
  EXPECT_EQ(shortage.retry_at(), now + milliseconds(1));
}

#ifdef __linux__

std::string present(const Socket& socket) {
  char name[32] = {};
  socklen_t length = sizeof name - 1;
  EXPECT_EQ(::getsockopt(socket.descriptor(), IPPROTO_TCP, TCP_CONGESTION, name, &length), 0);
  return name;
}

TEST(CongestionControl, AcceptsTheNameOfAnAlgorithm) {
  const Socket socket = Socket::stream(AF_INET);
  ASSERT_TRUE(use_congestion_control(socket, "reno"));  // available on every Linux
  EXPECT_EQ(present(socket), "reno");
  ASSERT_TRUE(use_congestion_control(socket, kOfTheSystem));
  EXPECT_EQ(present(socket), "reno");
}

TEST(CongestionControl, ALinkIsNotPacedByBbr) {
  const Socket socket = Socket::stream(AF_INET6);
  const std::string of_the_system = present(socket);
  ASSERT_TRUE(use_congestion_control(socket, kChosenForLinks));
  if (of_the_system.starts_with("bbr")) {
    EXPECT_THAT(present(socket), ::testing::AnyOf("cubic", "reno"));
  } else {
    EXPECT_EQ(present(socket), of_the_system);
  }
}

TEST(CongestionControl, WarnsIfTheSystemLacksTheAlgorithm) {
  const Socket socket = Socket::stream(AF_INET);
  const std::string before = present(socket);
  EXPECT_FALSE(use_congestion_control(socket, "no such one"));
  EXPECT_EQ(present(socket), before);
}

#endif

}  // namespace
}  // namespace mccl::transport::tcp
