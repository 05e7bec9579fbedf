// Tests that a handshake leads to an encrypted connection, and that a downgrade is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "rendezvous/connections/conversation.h"
#include "transport/tcp_pair.h"

namespace mccl::rendezvous {
namespace {

using ::testing::HasSubstr;
using transport::LinkKey;
using transport::Purpose;
using transport::tcp::connected_sockets;
using transport::tcp::Encryption;
using transport::tcp::SecureStream;
using transport::tcp::SocketPair;

const LinkKey kData = {7, Purpose::collective, 0};

Party party(int rank, std::shared_ptr<const Encryption> encryption) {
  return {.rank = rank,
          .size = 2,
          .job_key = "the job's key",
          .agreement = "chunk_bytes=1\n",
          .encryption = std::move(encryption)};
}

struct Talk {
  Conversation dialer;
  Conversation acceptor;
  Conversation::State dialer_state = Conversation::State::waiting;
  Conversation::State acceptor_state = Conversation::State::waiting;
};

/// Runs a handshake of rank 1 with rank 0 on a real connection until both sides have ended.
Talk talk(Party dialer, Party acceptor, const LinkKey& key = kData) {
  auto [near, far] = connected_sockets("127.0.0.1");
  Talk talk{{std::move(near), Handshake::dialer(std::move(dialer), 0, key)},
            {std::move(far), Handshake::acceptor(std::move(acceptor))}};
  const auto waits = [](Conversation::State state) {
    return state == Conversation::State::waiting;
  };
  const Clock::time_point limit = Clock::now() + std::chrono::seconds(20);
  while ((waits(talk.dialer_state) || waits(talk.acceptor_state)) && Clock::now() < limit) {
    if (waits(talk.dialer_state)) talk.dialer_state = talk.dialer.advance();
    if (waits(talk.acceptor_state)) talk.acceptor_state = talk.acceptor.advance();
  }
  return talk;
}

TEST(EncryptedConnection, CarriesBytesBothWays) {
  Talk both = talk(party(1, Encryption::by_key()), party(0, Encryption::by_key()));
  ASSERT_EQ(both.dialer_state, Conversation::State::done) << both.dialer.trouble();
  ASSERT_EQ(both.acceptor_state, Conversation::State::done) << both.acceptor.trouble();
  ByteStream near(both.dialer.take_socket());
  ByteStream far(both.acceptor.take_socket());
  ASSERT_NE(near.socket().secure(), nullptr);
  for (auto [from, to] : {std::pair{&near, &far}, std::pair{&far, &near}}) {
    const Bytes sent(100'000, std::byte{9});
    Bytes got;
    from->queue(sent);
    const Clock::time_point limit = Clock::now() + std::chrono::seconds(20);
    while (got.size() < sent.size() && Clock::now() < limit) {
      ASSERT_TRUE(from->flush());
      ASSERT_TRUE(to->receive(got, sent.size()));
    }
    EXPECT_EQ(got, sent);
  }
}

TEST(EncryptedConnection, ASideThatDoesNotEncryptIsRefusedByBoth) {
  for (const bool dialer_encrypts : {true, false}) {
    const auto of = [&](bool is_dialer) {
      return is_dialer == dialer_encrypts ? Encryption::by_key() : nullptr;
    };
    const Talk both = talk(party(1, of(true)), party(0, of(false)));
    for (const Conversation* each : {&both.dialer, &both.acceptor}) {
      EXPECT_EQ(each->handshake().refusal(), Refusal::settings);
      EXPECT_THAT(each->trouble(), HasSubstr("differ in encryption"));
      EXPECT_THAT(each->trouble(), HasSubstr("give every rank the same value"));
    }
  }
}

/// The relay must pass on bytes that it cannot read, so only the ranks at both ends encrypt.
TEST(EncryptedConnection, AConnectionToARelayIsNotEncryptedTwice) {
  Talk both =
      talk(party(1, Encryption::by_key()), party(0, Encryption::by_key()), {0, Purpose::relay, 0});
  ASSERT_EQ(both.dialer_state, Conversation::State::done);
  EXPECT_EQ(both.dialer.take_socket().secure(), nullptr);
  EXPECT_EQ(both.acceptor.take_socket().secure(), nullptr);
}

TEST(EncryptedConnection, EachHandshakeGivesAnotherKey) {
  std::vector<Proof> keys;
  for (int i = 0; i < 2; ++i) {
    const Talk both = talk(party(1, Encryption::by_key()), party(0, Encryption::by_key()));
    EXPECT_EQ(both.dialer.handshake().connection_key(), both.acceptor.handshake().connection_key());
    keys.push_back(both.dialer.handshake().connection_key());
  }
  EXPECT_NE(keys[0], keys[1]);
}

/// A process between the ranks relays the handshake unchanged, and then tries to continue in place
/// of the acceptor. Without the job key it must fail.
TEST(EncryptedConnection, AnotherProcessCannotTakeOverAfterTheHandshake) {
  auto [near, relay_near] = connected_sockets("127.0.0.1");
  auto [relay_far, far] = connected_sockets("127.0.0.1");
  Conversation dialer(std::move(near), Handshake::dialer(party(1, Encryption::by_key()), 0, kData));
  Conversation acceptor(std::move(far), Handshake::acceptor(party(0, Encryption::by_key())));
  const auto carry = [](const transport::tcp::Socket& from, const transport::tcp::Socket& to) {
    std::array<std::byte, 4096> bytes;
    const std::size_t got = from.receive(bytes).bytes;
    EXPECT_EQ(to.send(std::span(bytes).first(got)).bytes, got);
  };
  const Clock::time_point limit = Clock::now() + std::chrono::seconds(20);
  while (dialer.handshake().state() == Handshake::State::in_progress && Clock::now() < limit) {
    (void)dialer.advance();
    if (dialer.handshake().state() != Handshake::State::in_progress) break;
    carry(relay_near, relay_far);
    (void)acceptor.advance();
    carry(relay_far, relay_near);
  }
  ASSERT_EQ(dialer.handshake().state(), Handshake::State::done);
  SecureStream::Key guessed;
  guessed.fill(std::byte{1});
  SecureStream impostor(Encryption::by_key(), SecureStream::Role::server, guessed,
                        relay_near.descriptor());
  Conversation::State state = Conversation::State::waiting;
  while (state == Conversation::State::waiting && Clock::now() < limit) {
    (void)impostor.advance();
    state = dialer.advance();
  }
  EXPECT_EQ(state, Conversation::State::broken);
  EXPECT_FALSE(dialer.trouble().empty());
}

/// This value was computed with `openssl kdf -keylen 32 -kdfopt digest:SHA256 HKDF`, with the
/// SHA-256 of the salt as salt.
TEST(Derive, IsHkdf) {
  EXPECT_EQ(hex_of(derive("the job's key", bytes_of("transcript"), "label")),
            "6c94375d776df23b02a66624a73742206cfe137868300fa8c332fafe75057c9b");
}

}  // namespace
}  // namespace mccl::rendezvous
