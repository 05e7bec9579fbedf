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

/// Rank 1 relays a connection of rank 0 to rank 2.
class ARelay : public ::testing::Test {
 protected:
  ARelay() {
    std::vector<Listener> listeners;
    listeners.emplace_back(*Address::parse_numeric("127.0.0.1", 0), 0);
    DialRequest onwards;
    onwards.self = {1, 3, "key", {}};
    onwards.peer = 2;
    onwards.key = {2, transport::Purpose::relay, 0};
    onwards.deadline = Clock::now() + 1h;
    onwards.candidates = {{listeners.front().address(), {}, {}}};
    Acceptor acceptor(std::move(listeners), {2, 3, "key", {}}, Log(2, LogLevel::off), {});
    auto [source, waiting] = transport::tcp::connected_sockets("127.0.0.1");
    rank_0 = std::move(source);
    relaying.pass_on(0, 2, std::move(waiting), std::move(onwards));
    std::vector<Newcomer> newcomers;
    while (newcomers.empty() || relaying.users().empty()) {
      relaying.advance(Clock::now());
      acceptor.advance(Clock::now(), newcomers);
    }
    rank_2 = std::move(newcomers.front().socket);
  }

  /// Rank 2 reads nothing. Writes until no buffer on the path has room.
  void write_all_there_is_room_for() {
    const std::vector<char> piece(64 << 10, 'x');
    for (int quiet = 0; quiet < 20; ++quiet) {
      while (::send(rank_0.descriptor(), piece.data(), piece.size(), MSG_NOSIGNAL) > 0) quiet = 0;
      relaying.advance(begun);
      std::this_thread::sleep_for(2ms);
    }
  }

  /// Closes rank 0's end. The relay notices this when it forwards bytes from rank 2.
  void end_rank_0() {
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
  Relaying relaying{"auto", kGivenToTakeIt, Log(1, LogLevel::off)};
  Socket rank_0;
  Socket rank_2;
};

TEST_F(ARelay, GivesUpOnAnEndThatDrainsTooSlowly) {
  write_all_there_is_room_for();
  end_rank_0();
  for (Clock::duration passed{}; passed < kGivenToTakeIt; passed += 1s) {
    take_a_byte();
    relaying.advance(begun + passed);
    ASSERT_FALSE(relaying.users().empty()) << "it was given up too soon";
    EXPECT_LE(relaying.next_deadline(), begun + kGivenToTakeIt);
  }
  relaying.advance(begun + kGivenToTakeIt);
  EXPECT_TRUE(relaying.users().empty());
}

TEST_F(ARelay, LastsWhileBothEndsAreOpen) {
  write_all_there_is_room_for();
  relaying.advance(begun + 24h);
  EXPECT_FALSE(relaying.users().empty());
}

}  // namespace
}  // namespace mccl::rendezvous
