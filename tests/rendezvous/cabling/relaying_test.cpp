// Tests what a relay does with a connection after one of its ends has closed.
#include "rendezvous/cabling/relaying.h"

#include <gtest/gtest.h>

#include <thread>

#include "rendezvous/connections/accepting.h"
#include "rendezvous/meeting/mesh_job.h"
#include "transport/tcp_pair.h"

namespace mccl::rendezvous {
namespace {

using namespace std::chrono_literals;
using transport::tcp::Accepted;
using transport::tcp::Address;
using transport::tcp::Listener;
using transport::tcp::Socket;

constexpr Clock::duration kGivenToTakeIt = 60s;
constexpr Clock::duration kRetry = 10s;
constexpr std::size_t kBufferBytes = 16 << 10;

/// Rank 1 relays a connection of rank 0 to rank 2.
class ARelay : public ::testing::Test {
 protected:
  ARelay() {
    std::vector<Listener> listeners;
    listeners.emplace_back(*Address::parse_numeric("127.0.0.1", 0), kBufferBytes);
    DialRequest onwards;
    onwards.self = {1, 3, "key", {}};
    onwards.peer = 2;
    onwards.key = {2, transport::Purpose::relay, 0};
    onwards.deadline = Clock::now() + 1h;
    onwards.candidates = {{listeners.front().address(), {}, {}}};
    onwards.buffer_bytes = kBufferBytes;
    Acceptor acceptor(std::move(listeners), {2, 3, "key", {}}, Log(2, LogLevel::off), {});
    auto [source, waiting] = transport::tcp::connected_sockets("127.0.0.1");
    rank_0 = std::move(source);
    relaying.pass_on(0, 2, std::move(waiting), std::move(onwards));
    std::vector<Newcomer> newcomers;
    while (newcomers.empty()) {
      relaying.advance(Clock::now());
      acceptor.advance(Clock::now(), newcomers);
    }
    rank_2 = std::move(newcomers.front().socket);
  }

  /// Rank 2 reads nothing, and the relay holds most of these bytes. There are fewer than
  /// Splice::kHeldBytes, so that the relay takes all of them.
  void write_more_than_rank_2_has_room_for() {
    const std::vector<char> bytes(200 << 10, 'x');
    for (std::size_t written = 0; written < bytes.size() || rank_0.unacknowledged() > 0;) {
      const ssize_t sent =
          ::send(rank_0.descriptor(), bytes.data() + written, bytes.size() - written, MSG_NOSIGNAL);
      if (sent > 0) written += static_cast<std::size_t>(sent);
      relaying.advance(begun);
    }
  }

  /// Closes rank 0's end in good order. The relay notices this when it forwards bytes from rank 2.
  void end_rank_0() {
    ASSERT_TRUE(rank_0.end_sending());
    while (rank_0.unacknowledged() > 0) relaying.advance(begun);
    rank_0.close();
    for (int i = 0; i < 20; ++i) {
      (void)::send(rank_2.descriptor(), "x", 1, MSG_NOSIGNAL);
      relaying.advance(begun);
      std::this_thread::sleep_for(2ms);
    }
  }

  void take_a_byte() {
    char byte = 0;
    EXPECT_EQ(::recv(rank_2.descriptor(), &byte, 1, 0), 1);
  }

  const Clock::time_point begun = Clock::now();
  bool is_needed(Clock::duration passed = {}) {
    return relaying.is_needed(begun + passed, [this](int rank) { return rank == ended; });
  }

  Relaying relaying{"auto", kGivenToTakeIt, kRetry, Log(1, LogLevel::off)};
  int ended = -1;
  Socket rank_0;
  Socket rank_2;
};

TEST_F(ARelay, GivesUpOnAnEndThatDrainsTooSlowly) {
  write_more_than_rank_2_has_room_for();
  end_rank_0();
  for (Clock::duration passed{}; passed < kGivenToTakeIt; passed += 1s) {
    take_a_byte();
    relaying.advance(begun + passed);
    ASSERT_TRUE(is_needed()) << "it was given up too soon";
    EXPECT_LE(relaying.next_deadline(), begun + kGivenToTakeIt);
  }
  relaying.advance(begun + kGivenToTakeIt);
  EXPECT_FALSE(is_needed());
}

TEST_F(ARelay, StaysAfterABreakUntilTheRanksHaveReplacedTheConnection) {
  transport::tcp::reset_when_closed(rank_0);
  rank_0.close();
  pollfd waiting = {rank_2.descriptor(), POLLIN, 0};
  for (Clock::duration passed{}; ::poll(&waiting, 1, 1) == 0; passed += 10ms)
    relaying.advance(begun + passed);
  std::byte none;
  EXPECT_EQ(rank_2.receive({&none, 1}).error, ECONNRESET);
  EXPECT_TRUE(is_needed());
  EXPECT_FALSE(is_needed(kRetry + 1h));
  ended = 2;
  EXPECT_FALSE(is_needed());
}

TEST_F(ARelay, LastsWhileBothEndsAreOpen) {
  write_more_than_rank_2_has_room_for();
  relaying.advance(begun + 24h);
  EXPECT_TRUE(is_needed());
}

TEST(Relaying, RelaysALimitedNumberOfConnectionsForOneNeighbour) {
  Relaying relaying{"auto", kGivenToTakeIt, kRetry, Log(1, LogLevel::off)};
  for (std::size_t i = 0; i < kMostRelayed; ++i) relaying.pass_on(0, 2, Socket(), {});
  auto [refused, refused_here] = transport::tcp::connected_sockets("127.0.0.1");
  auto [relayed, relayed_here] = transport::tcp::connected_sockets("127.0.0.1");
  relaying.pass_on(0, 2, std::move(refused_here), {});
  relaying.pass_on(3, 2, std::move(relayed_here), {});
  EXPECT_TRUE(transport::tcp::is_ready(refused, POLLIN));
  EXPECT_FALSE(transport::tcp::is_ready(relayed, POLLIN));
}

}  // namespace
}  // namespace mccl::rendezvous
