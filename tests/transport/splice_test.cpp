// Runs the conformance suite of links on links whose bytes a relay forwards.
#include "transport/tcp/splice.h"

#include <poll.h>

#include <atomic>
#include <cerrno>
#include <list>
#include <mutex>
#include <optional>

#include "transport/link_conformance.h"
#include "transport/tcp/link.h"
#include "transport/tcp_pair.h"

namespace mccl::transport {
namespace {

using tcp::Address;
using tcp::connected_sockets;
using tcp::Listener;
using tcp::Socket;
using tcp::Splice;

/// A thread that forwards bytes like a relay.
class Relay {
 public:
  Relay() : thread_([this] { run(); }) {}
  ~Relay() {
    stop_ = true;
    thread_.join();
  }
  void pass_on(Socket one, Socket other) {
    const std::lock_guard lock(mutex_);
    splices_.emplace_back(std::move(one), std::move(other));
  }

 private:
  void run() {
    while (!stop_) {
      std::vector<pollfd> watched;
      {
        const std::lock_guard lock(mutex_);
        splices_.remove_if([](Splice& splice) { return !splice.advance(); });
        for (const Splice& splice : splices_) splice.watch(watched);
      }
      ::poll(watched.data(), watched.size(), 5);
    }
  }

  std::mutex mutex_;
  std::list<Splice> splices_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

LinkPair through_a_relay() {
  static Relay relay;
  auto [near, first] = connected_sockets("127.0.0.1");
  auto [second, far] = connected_sockets("127.0.0.1");
  relay.pass_on(std::move(first), std::move(second));
  return {std::make_unique<tcp::TcpLink>(std::move(near), "rank 1"),
          std::make_unique<tcp::TcpLink>(std::move(far), "rank 0")};
}

INSTANTIATE_TEST_SUITE_P(Relayed, LinkConformance,
                         ::testing::Values(LinkFactory{"tcp_through_a_relay", through_a_relay}),
                         [](const auto& info) { return info.param.name; });

std::size_t send_all_there_is_room_for(const Socket& socket) {
  const std::vector<char> piece(64 << 10, 'x');
  std::size_t sent = 0;
  for (;;) {
    const ssize_t n = ::send(socket.descriptor(), piece.data(), piece.size(), MSG_NOSIGNAL);
    if (n <= 0) return sent;
    sent += static_cast<std::size_t>(n);
  }
}

TEST(Splice, BuffersABoundedNumberOfBytes) {
  auto [near, first] = connected_sockets("127.0.0.1");
  auto [second, far] = connected_sockets("127.0.0.1");
  for (const Socket* socket : {&near, &first, &second, &far}) tcp::set_buffer_bytes(*socket, 16384);
  Splice splice(std::move(first), std::move(second));
  std::size_t sent = 0;
  std::size_t before = 1;
  for (int quiet = 0; quiet < 20; quiet = sent == before ? quiet + 1 : 0) {
    before = sent;
    sent += send_all_there_is_room_for(near);
    ASSERT_TRUE(splice.advance());
    std::vector<pollfd> watched;
    splice.watch(watched);
    ::poll(watched.data(), watched.size(), 10);
  }
  // Only what the splice holds and what the buffers of four sockets hold may be sent.
  EXPECT_LT(sent, Splice::kHeldBytes + (std::size_t{1} << 20));
  // When the splice can move nothing more, its descriptors must not be ready, or it would spin.
  const auto is_ready = [&splice] {
    std::vector<pollfd> watched;
    splice.watch(watched);
    return ::poll(watched.data(), watched.size(), 50) > 0;
  };
  int looks = 0;
  for (; looks < 200 && is_ready(); ++looks) ASSERT_TRUE(splice.advance());
  EXPECT_LT(looks, 200);
}

void expect_reset(const Socket& socket) {
  pollfd waiting = {socket.descriptor(), POLLIN, 0};
  ASSERT_GT(::poll(&waiting, 1, 20'000), 0);
  std::byte none;
  EXPECT_EQ(socket.receive({&none, 1}).error, ECONNRESET);
}

TEST(Splice, ResetsTheOtherConnectionWhenOneBreaks) {
  auto [near, first] = connected_sockets("127.0.0.1");
  auto [second, far] = connected_sockets("127.0.0.1");
  std::optional<Splice> splice(std::in_place, std::move(first), std::move(second));
  EXPECT_TRUE(splice->advance());
  tcp::reset_when_closed(far);
  far.close();
  std::vector<pollfd> watched;
  splice->watch(watched);
  ASSERT_GT(::poll(watched.data(), watched.size(), 20'000), 0);
  const Clock::time_point now = Clock::now();
  EXPECT_TRUE(splice->advance(now)) << "the last bytes may be on their way";
  EXPECT_FALSE(splice->advance(now + Splice::kForLastBytes));
  splice.reset();
  expect_reset(near);
}

/// The system reports the error of a broken connection once, here to the call that sends.
/// Afterwards it reports the end of the stream, which must not count as an orderly end.
TEST(Splice, ResetsTheOtherConnectionWhenOneBreaksUnderTraffic) {
  auto [near, first] = connected_sockets("127.0.0.1");
  auto [second, far] = connected_sockets("127.0.0.1");
  std::optional<Splice> splice(std::in_place, std::move(first), std::move(second));
  const pollfd reset = {splice->other().descriptor(), 0, 0};
  tcp::reset_when_closed(far);
  far.close();
  for (pollfd each = reset; (each.revents & POLLERR) == 0;) ASSERT_GE(::poll(&each, 1, 20'000), 0);
  ASSERT_EQ(::send(near.descriptor(), "x", 1, MSG_NOSIGNAL), 1);
  ASSERT_TRUE(tcp::is_ready(splice->one(), POLLIN));
  const Clock::time_point now = Clock::now();
  EXPECT_TRUE(splice->advance(now));
  EXPECT_TRUE(splice->is_broken());
  EXPECT_FALSE(splice->advance(now + Splice::kForLastBytes));
  splice.reset();
  expect_reset(near);
}

TEST(Inlet, DeliversConnectionsInOrder) {
  tcp::Inlet inlet;
  auto [near, first] = connected_sockets("127.0.0.1");
  auto [other, second] = connected_sockets("127.0.0.1");
  const Address from = first.remote();
  inlet.hand_over(std::move(first));
  inlet.hand_over(std::move(second));
  Listener listener = inlet.listener();
  pollfd waiting = {listener.descriptor(), POLLIN, 0};
  ASSERT_GT(::poll(&waiting, 1, 20'000), 0);
  const tcp::Accepted taken = listener.accept();
  ASSERT_TRUE(taken.socket);
  EXPECT_EQ(taken.from, from);
  EXPECT_EQ(taken.socket.remote(), near.local());
  ASSERT_TRUE(listener.accept().socket);
  EXPECT_FALSE(listener.accept().socket);
}

TEST(Inlet, ClosesUnclaimedConnections) {
  auto [near, far] = connected_sockets("127.0.0.1");
  {
    tcp::Inlet inlet;
    inlet.hand_over(std::move(far));
    const Listener listener = inlet.listener();
  }
  char byte = 0;
  pollfd waiting = {near.descriptor(), POLLIN, 0};
  ASSERT_GT(::poll(&waiting, 1, 20'000), 0);
  EXPECT_LE(::recv(near.descriptor(), &byte, 1, 0), 0);
}

}  // namespace
}  // namespace mccl::transport
