// Tests single dials with a simulated clock.
#include "rendezvous/connections/dialing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "rendezvous/connections/accepting.h"
#include "rendezvous/meeting/mesh_job.h"
#include "support/no_more_files.h"
#include "transport/tcp/listener.h"

namespace mccl::rendezvous {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using transport::tcp::Address;
using transport::tcp::Listener;

const Party kDialer = {0, 2, "key", ""};
const Party kAcceptor = {1, 2, "key", ""};

Listener listener_at(const char* host) { return Listener(*Address::parse_numeric(host, 0), 0); }

Address nobody_at(const char* host) { return listener_at(host).address(); }

DialRequest request_to(const std::vector<Address>& addresses, Clock::duration limit) {
  DialRequest request;
  request.self = kDialer;
  request.peer = 1;
  request.deadline = Clock::now() + limit;
  for (const Address& address : addresses) request.candidates.push_back({address, {}, {}});
  return request;
}

std::size_t attempts_of(const Dial& dial) {
  std::vector<pollfd> descriptors;
  dial.watch(descriptors);
  return descriptors.size();
}

TEST(Dial, StartsTheNextCandidateWhileOneHangs) {
  const Listener mute = listener_at("127.0.0.1"), mute_too = listener_at("127.0.0.2");
  Dial dial(request_to({mute.address(), mute_too.address()}, 1h));
  const Clock::time_point begin = Clock::now();
  EXPECT_FALSE(dial.advance(begin));
  EXPECT_EQ(attempts_of(dial), 1u);
  EXPECT_EQ(dial.next_deadline(), begin + 250ms);
  EXPECT_FALSE(dial.advance(begin + 249ms));
  EXPECT_EQ(attempts_of(dial), 1u);
  EXPECT_FALSE(dial.advance(begin + 250ms));
  EXPECT_EQ(attempts_of(dial), 2u);
  // Both connections are established, so neither is given up.
  EXPECT_FALSE(dial.advance(begin + 10min));
  EXPECT_EQ(attempts_of(dial), 2u);
}

TEST(Dial, KeepsAnEstablishedConnection) {
  std::vector<Listener> listeners;
  listeners.push_back(listener_at("127.0.0.1"));
  const Address there = listeners.front().address();
  Acceptor acceptor(std::move(listeners), kAcceptor, Log(1, LogLevel::off), {});
  Dial dial(request_to({there}, 1h));
  const Clock::time_point begin = Clock::now();
  // Exchanges hello and challenge, both proofs, and the settings; only the verdict is missing.
  std::vector<Newcomer> newcomers;
  for (int round = 0; round < 3; ++round) {
    ASSERT_FALSE(dial.advance(begin));
    if (round < 2) acceptor.advance(begin, newcomers);
  }
  ASSERT_TRUE(newcomers.empty());
  for (const auto passed : {2s, 3s, 1000s, 3000s}) ASSERT_FALSE(dial.advance(begin + passed));
  // The acceptor finally sends its verdict, and then considers the handshake done.
  while (newcomers.empty()) {
    acceptor.advance(begin, newcomers);
    if (newcomers.empty()) {
      ASSERT_FALSE(dial.advance(begin + 3000s));
    }
  }
  acceptor.close();
  for (Clock::time_point now = begin + 3500s; !dial.advance(now);) now += 1s;
  EXPECT_TRUE(dial.take_socket()) << dial.reason();
  EXPECT_EQ(newcomers.size(), 1u);
}

TEST(Dial, RetriesARefusedCandidateWhileAnotherHangs) {
  const Listener mute = listener_at("127.0.0.1");
  const Address there = nobody_at("127.0.0.2");
  Dial dial(request_to({mute.address(), there}, 1h));
  const Clock::time_point begin = Clock::now();
  Clock::time_point now = begin;
  for (; now < begin + 1min; now += 10ms) ASSERT_FALSE(dial.advance(now));
  std::vector<Listener> listeners;
  listeners.emplace_back(there, 0);
  Acceptor acceptor(std::move(listeners), kAcceptor, Log(1, LogLevel::off), {});
  std::vector<Newcomer> newcomers;
  while (now < begin + 2min && !dial.advance(now)) {
    now += 10ms;
    acceptor.advance(now, newcomers);
  }
  EXPECT_TRUE(dial.take_socket()) << dial.reason();
  EXPECT_EQ(dial.winner().to, there);
}

TEST(Dial, EndsAfterTheTimeLimitIfAllRefuse) {
  DialRequest request = request_to({nobody_at("127.0.0.1"), nobody_at("127.0.0.2")}, 1h);
  request.refused_for = 1s;
  Dial dial(std::move(request));
  const Clock::time_point begin = Clock::now();
  Clock::time_point now = begin;
  while (!dial.advance(now)) {
    if (attempts_of(dial) == 0) now = dial.next_deadline();
    ASSERT_LT(now, begin + 3s);
  }
  EXPECT_GE(now, begin + 1s);
  EXPECT_THAT(dial.reason(), HasSubstr("Connection refused"));
}

TEST(Dial, BacksOffBetweenRounds) {
  Dial dial(request_to({nobody_at("127.0.0.1")}, 1h));
  Clock::time_point now = Clock::now();
  std::vector<milliseconds> pauses;
  while (pauses.size() < 8) {
    const bool failed_at_once = !dial.advance(now) && attempts_of(dial) == 0;
    if (!failed_at_once) {
      std::vector<pollfd> descriptors;
      dial.watch(descriptors);
      ASSERT_GT(::poll(descriptors.data(), descriptors.size(), 20'000), 0);
      continue;
    }
    const Clock::time_point next = dial.next_deadline();
    pauses.push_back(std::chrono::duration_cast<milliseconds>(next - now));
    now = next;
  }
  EXPECT_THAT(pauses, ::testing::ElementsAre(20ms, 40ms, 80ms, 160ms, 320ms, 500ms, 500ms, 500ms));
}

TEST(Dial, PrefersTheCompleteErrorToATruncatedOne) {
  Dial dial(request_to({nobody_at("127.0.0.1")}, 1h));
  const Clock::time_point begin = Clock::now();
  while (!dial.advance(begin) && attempts_of(dial) > 0) {
  }
  EXPECT_TRUE(dial.advance(begin + 2h));
  EXPECT_THAT(dial.reason(), HasSubstr("Connection refused"));
  EXPECT_FALSE(dial.take_socket());
}

TEST(Dial, AProvenPeerEndsTheOtherAttempts) {
  const Listener mute = listener_at("127.0.0.2");
  std::vector<Listener> listeners;
  listeners.push_back(listener_at("127.0.0.1"));
  const Address there = listeners.front().address();
  Acceptor acceptor(std::move(listeners), kAcceptor, Log(1, LogLevel::off), {});
  DialRequest request = request_to({mute.address(), there, mute.address()}, 1h);
  request.stagger = 0s;
  Dial dial(std::move(request));
  const Clock::time_point now = Clock::now();
  std::vector<Newcomer> newcomers;
  std::size_t last = 0;
  while (!dial.advance(now)) {
    last = attempts_of(dial);
    acceptor.advance(now, newcomers);
  }
  EXPECT_EQ(last, 1u) << "other addresses were still tried after the handshake with the peer";
  EXPECT_TRUE(dial.take_socket());
  EXPECT_EQ(newcomers.size(), 1u);
  EXPECT_EQ(dial.winner().to, there);
}

TEST(Dial, WithoutCandidatesEndsAtItsDeadline) {
  Dial dial(request_to({}, 1h));
  EXPECT_FALSE(dial.advance(Clock::now()));
  EXPECT_TRUE(dial.advance(Clock::now() + 2h));
  EXPECT_THAT(dial.reason(), HasSubstr("no address"));
}

TEST(Dial, BlamesTheRouteBeyondARelayThatAnswered) {
  DialRequest request = request_to({listener_at("127.0.0.1").address()}, 1h);
  request.candidates.front().met = true;
  request.through = FirstHop{kDialer, 2, {}};
  Dial dial(std::move(request));
  EXPECT_TRUE(dial.advance(Clock::now() + 2h));
  EXPECT_THAT(dial.reason(), HasSubstr("Rank 2 was to relay the connection to rank 1"));
  EXPECT_THAT(dial.reason(), HasSubstr("no firewall on its host blocks its port"));
}

TEST(Dial, RecognisesTheErrorOfExhaustedDescriptors) {
  int code = 0;
  {
    const mccl::testing::NoMoreFiles none;
    try {
      const auto socket = transport::tcp::Socket::stream(AF_INET);
    } catch (const transport::tcp::SocketError& error) {
      errno = 0;  // any later call may reset it
      code = error.code;
    }
  }
  EXPECT_EQ(code, EMFILE);
}

TEST(Acceptor, ClosesUnauthenticatedConnectionsAfterFiveSeconds) {
  std::vector<Listener> listeners;
  listeners.push_back(listener_at("127.0.0.1"));
  const Address there = listeners.front().address();
  int refused = 0;
  Acceptor acceptor(std::move(listeners), kAcceptor, Log(1, LogLevel::off), [&] { ++refused; });
  const auto silent = transport::tcp::Socket::stream(AF_INET);
  transport::tcp::start_connect(silent, there, nullptr);
  std::vector<pollfd> descriptors;
  acceptor.watch(descriptors);
  ASSERT_GT(::poll(descriptors.data(), descriptors.size(), 20'000), 0);
  const Clock::time_point now = Clock::now();
  std::vector<Newcomer> newcomers;
  acceptor.advance(now, newcomers);
  EXPECT_EQ(acceptor.next_deadline(), now + 5s);
  acceptor.advance(now + 4999ms, newcomers);
  EXPECT_EQ(refused, 0);
  acceptor.advance(now + 5s, newcomers);
  EXPECT_EQ(refused, 1);
  EXPECT_EQ(acceptor.next_deadline(), Clock::time_point::max());
  EXPECT_TRUE(newcomers.empty());
}

}  // namespace
}  // namespace mccl::rendezvous
