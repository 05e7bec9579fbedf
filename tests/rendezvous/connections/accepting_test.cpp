// Tests which connection is dropped when more connections wait to be authenticated than a rank has
// room for.
#include "rendezvous/connections/accepting.h"

#include <gtest/gtest.h>

#include <deque>
#include <string>
#include <thread>

#include "rendezvous/connections/dialing.h"
#include "rendezvous/meeting/mesh_job.h"

namespace mccl::rendezvous {
namespace {

using transport::tcp::Address;
using transport::tcp::Socket;

/// Number of source addresses; larger than the number of unproven connections that a rank holds.
constexpr int kSources = 200;
/// The number of connections that a listener accepts at a time.
constexpr int kComeAtOnce = 64;
constexpr std::size_t kStayOpen = 512;
constexpr std::chrono::milliseconds kBetweenRounds{4};

/// Connections without the key to one listener. Each connection uses the next of many source
/// addresses and sends `words`. All these addresses are higher than those of peers.
class Strangers {
 public:
  Strangers(const Endpoint& target, Bytes words)
      : target_(*Address::parse_numeric(target.addresses.front(), target.port)),
        words_(std::move(words)) {}

  void come() {
    for (int i = 0; i < kComeAtOnce; ++i) {
      const std::string from = "127.0.1." + std::to_string(1 + come_++ % kSources);
      const Address source = *Address::parse_numeric(from, 0);
      open_.push_back(Socket::stream(AF_INET));
      transport::tcp::reset_when_closed(open_.back());  // frees the local port at once
      transport::tcp::start_connect(open_.back(), target_, &source);
      if (!words_.empty())
        (void)::send(open_.back().descriptor(), words_.data(), words_.size(), MSG_NOSIGNAL);
      if (open_.size() > kStayOpen) open_.pop_front();
    }
  }

 private:
  const Address target_;
  const Bytes words_;
  int come_ = 0;
  std::deque<Socket> open_;
};

/// Returns a hello, the first message of a handshake. It can be made without the key of the job.
Bytes a_hello() {
  const Handshake handshake = Handshake::dialer({0, 2, "another key", {}}, 1, {});
  return {handshake.output().begin(), handshake.output().end()};
}

class AFloodFromManyAddresses : public ::testing::Test {
 protected:
  AFloodFromManyAddresses() { job.exchange_endpoints(); }

  void flood_with(Bytes words) {
    strangers.emplace(job[1].mesh->endpoint(), std::move(words));
    for (int i = 0; i < 4; ++i) one_round();
  }

  /// Adds new strangers, drives rank 1 once, and waits briefly.
  void one_round() {
    if (strangers) strangers->come();
    job[1].mesh->progress(job[1].events);
    std::this_thread::sleep_for(kBetweenRounds);
  }

  /// Returns how many attempts rank 0 needed to connect to rank 1 from an address, or most + 1 if
  /// all failed.
  int attempts_from(const char* from, const transport::LinkKey& key, int most) {
    for (int attempt = 1; attempt <= most; ++attempt) {
      const Endpoint& there = job[1].mesh->endpoint();
      DialRequest request;
      request.self = {0, 2, "the job's key", agreement_of(loopback_config())};
      request.peer = 1;
      request.key = key;
      request.deadline = in(seconds(20));
      request.candidates = {{*Address::parse_numeric(there.addresses.front(), there.port),
                             Address::parse_numeric(from, 0),
                             {}}};
      Dial dial(std::move(request));
      // A failed attempt is recorded in `outcome`.
      const std::string none = "no answer";
      while (!dial.advance(Clock::now())) {
        const std::string& outcome = dial.first_choice().outcome;
        if (!outcome.empty() && outcome != none) break;
        one_round();
      }
      if (dial.take_socket()) return attempt;
    }
    return most + 1;
  }

  Job job{2};
  std::optional<Strangers> strangers;
};

TEST_F(AFloodFromManyAddresses, AdmitsPeersWithPublishedAddresses) {
  job[1].mesh->everyone_is_here();
  flood_with(a_hello());
  for (std::uint64_t group = 1; group <= 10; ++group)
    ASSERT_EQ(attempts_from("127.0.0.1", {group, transport::Purpose::collective, 0}, 1), 1);
}

TEST_F(AFloodFromManyAddresses, AdmitsPeersWithAControlConnectionFromTheAddress) {
  ASSERT_EQ(attempts_from("127.0.0.9", {}, 1), 1);
  job[1].mesh->everyone_is_here();
  flood_with(a_hello());
  for (std::uint64_t group = 1; group <= 10; ++group)
    ASSERT_EQ(attempts_from("127.0.0.9", {group, transport::Purpose::collective, 0}, 1), 1);
}

TEST_F(AFloodFromManyAddresses, OfSilentConnectionsBlocksNoRankDuringTheMeeting) {
  flood_with({});
  for (std::uint64_t group = 1; group <= 10; ++group)
    ASSERT_EQ(attempts_from("127.0.0.1", {group, transport::Purpose::collective, 0}, 1), 1);
}

/// Without the key, a peer looks like a stranger until it is authenticated. Chance decides which
/// connection is dropped, so a peer must get through after a few attempts.
TEST_F(AFloodFromManyAddresses, OfPartialHandshakesBlocksRanksOnlyBriefly) {
  flood_with(a_hello());
  for (const char* from : {"127.0.0.1", "127.0.9.9"})
    EXPECT_LE(attempts_from(from, {}, 50), 50) << from;
}

}  // namespace
}  // namespace mccl::rendezvous
