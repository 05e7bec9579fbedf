#include "rendezvous/connections/handshake.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>

#include "mccl/error.h"
#include "rendezvous/connections/proof.h"

namespace mccl::rendezvous {
namespace {

using State = Handshake::State;
using ::testing::HasSubstr;
using ::testing::Not;

const transport::LinkKey kKey = {0x1122334455667788, transport::Purpose::collective, 3};
const std::string kSettings = "chunk_bytes=4194304\ncompression=none\n";

Party party(int rank, std::string settings = kSettings, std::string job_key = "secret") {
  return {rank, 4, std::move(job_key), std::move(settings)};
}

/// All bytes sent in each direction.
struct Wires {
  Bytes to_acceptor;
  Bytes to_dialer;
};

/// A byte to alter in transit.
struct Flip {
  bool to_acceptor = true;
  std::size_t index = 0;
  std::byte mask{1};
};

/// Carries bytes from one side to the other, up to `piece` at a time. Returns true if any moved.
bool carry(Handshake& from, Handshake& to, Bytes& wire, const Flip* flip, std::size_t piece) {
  bool moved = false;
  for (;;) {
    const std::size_t n = std::min({piece, from.output().size(), to.wanted()});
    if (n == 0) return moved;
    Bytes bytes(from.output().begin(), from.output().begin() + static_cast<std::ptrdiff_t>(n));
    from.sent(n);
    if (flip != nullptr && flip->index >= wire.size() && flip->index < wire.size() + n)
      bytes[flip->index - wire.size()] ^= flip->mask;
    append(wire, bytes);
    to.feed(bytes);
    moved = true;
  }
}

Wires pump(Handshake& dialer, Handshake& acceptor, const Flip* flip = nullptr,
           std::size_t piece = 1000) {
  Wires wires;
  const Flip* forward = flip != nullptr && flip->to_acceptor ? flip : nullptr;
  const Flip* backward = flip != nullptr && !flip->to_acceptor ? flip : nullptr;
  for (bool moved = true; moved;) {
    moved = carry(dialer, acceptor, wires.to_acceptor, forward, piece);
    moved = carry(acceptor, dialer, wires.to_dialer, backward, piece) || moved;
  }
  return wires;
}

TEST(Handshake, BothEndsLearnTheRankOfTheOther) {
  for (const std::size_t piece : {1u, 7u, 1000u}) {
    Handshake dialer = Handshake::dialer(party(2), 1, kKey);
    Handshake acceptor = Handshake::acceptor(party(1));
    pump(dialer, acceptor, nullptr, piece);
    EXPECT_EQ(dialer.state(), State::done) << dialer.reason();
    EXPECT_EQ(acceptor.state(), State::done) << acceptor.reason();
    EXPECT_TRUE(dialer.proven() && acceptor.proven());
    EXPECT_EQ(dialer.peer(), 1);
    EXPECT_EQ(acceptor.peer(), 2);
    EXPECT_EQ(acceptor.key(), kKey);
    EXPECT_EQ(dialer.wanted() + acceptor.wanted(), 0u);
  }
}

TEST(Handshake, AcceptsEmptyAndLongestAgreements) {
  for (const std::size_t bytes : {std::size_t{0}, kMaxAgreementBytes}) {
    Handshake dialer = Handshake::dialer(party(0, std::string(bytes, 'x')), 1, kKey);
    Handshake acceptor = Handshake::acceptor(party(1, std::string(bytes, 'x')));
    pump(dialer, acceptor);
    EXPECT_EQ(dialer.state(), State::done) << dialer.reason();
  }
  EXPECT_THROW(Handshake::acceptor(party(0, std::string(kMaxAgreementBytes + 1, 'x'))),
               InvalidArgument);
}

TEST(Handshake, TheDialerCompletesAfterTheAcceptor) {
  Handshake dialer = Handshake::dialer(party(2), 1, kKey);
  Handshake acceptor = Handshake::acceptor(party(1));
  Bytes unused;
  while (dialer.state() == State::in_progress) {
    const bool forward = carry(dialer, acceptor, unused, nullptr, 1);
    ASSERT_TRUE(carry(acceptor, dialer, unused, nullptr, 1) || forward);
  }
  EXPECT_EQ(acceptor.state(), State::done);
}

TEST(Handshake, ConsumesOnlyItsOwnBytes) {
  Handshake dialer = Handshake::dialer(party(2), 1, kKey);
  Handshake acceptor = Handshake::acceptor(party(1));
  EXPECT_THROW(acceptor.feed(Bytes(acceptor.wanted() + 1)), InvalidArgument);
  pump(dialer, acceptor);
  EXPECT_THROW(dialer.feed(Bytes(1)), InvalidArgument);
  EXPECT_THROW(acceptor.feed(Bytes(1)), InvalidArgument);
}

TEST(Handshake, EveryAlteredByteIsNoticed) {
  Handshake model_dialer = Handshake::dialer(party(2), 1, kKey);
  Handshake model_acceptor = Handshake::acceptor(party(1));
  const Wires model = pump(model_dialer, model_acceptor);
  ASSERT_EQ(model_dialer.state(), State::done);
  for (const bool to_acceptor : {true, false}) {
    const std::size_t length = (to_acceptor ? model.to_acceptor : model.to_dialer).size();
    for (std::size_t index = 0; index < length; ++index) {
      for (const int mask : {0x01, 0x80, 0xff}) {
        SCOPED_TRACE(testing::Message() << (to_acceptor ? "to acceptor" : "to dialer") << ", byte "
                                        << index << ", mask " << mask);
        const Flip flip{to_acceptor, index, static_cast<std::byte>(mask)};
        Handshake dialer = Handshake::dialer(party(2), 1, kKey);
        Handshake acceptor = Handshake::acceptor(party(1));
        pump(dialer, acceptor, &flip);
        EXPECT_NE(dialer.state(), State::done);
        EXPECT_TRUE(dialer.state() == State::refused || acceptor.state() == State::refused);
        // An acceptor that receives an altered byte must not be done. The dialer may receive one in
        // the last message, which the acceptor sends once it is done.
        EXPECT_TRUE(!to_acceptor || acceptor.state() != State::done);
      }
    }
  }
}

TEST(Handshake, ATruncatedHandshakeStaysIncomplete) {
  Handshake model_dialer = Handshake::dialer(party(2), 1, kKey);
  Handshake model_acceptor = Handshake::acceptor(party(1));
  const std::size_t length = pump(model_dialer, model_acceptor).to_dialer.size();
  for (std::size_t cut = 0; cut < length; ++cut) {
    Handshake dialer = Handshake::dialer(party(2), 1, kKey);
    Handshake acceptor = Handshake::acceptor(party(1));
    Bytes unused;
    std::size_t left = cut;
    for (bool moved = true; moved;) {
      moved = carry(dialer, acceptor, unused, nullptr, 1000);
      const std::size_t n = std::min({left, acceptor.output().size(), dialer.wanted()});
      const Bytes bytes(acceptor.output().begin(),
                        acceptor.output().begin() + static_cast<std::ptrdiff_t>(n));
      acceptor.sent(n);
      dialer.feed(bytes);
      left -= n;
      moved = moved || n > 0;
    }
    EXPECT_EQ(dialer.state(), State::in_progress);
    EXPECT_GT(dialer.wanted(), 0u);
    EXPECT_FALSE(dialer.explain_close().empty());
  }
}

TEST(Handshake, AnotherKeyIsRefused) {
  Handshake dialer = Handshake::dialer(party(2, kSettings, "guess"), 1, kKey);
  Handshake acceptor = Handshake::acceptor(party(1));
  const Wires wires = pump(dialer, acceptor);
  EXPECT_EQ(acceptor.state(), State::refused);
  EXPECT_EQ(acceptor.refusal(), Refusal::proof);
  EXPECT_FALSE(acceptor.proven());
  EXPECT_THAT(acceptor.reason(), HasSubstr("MCCL_JOB_KEY"));
  // The stranger has received nothing but the challenge.
  EXPECT_EQ(wires.to_dialer.size(), 71u);
  EXPECT_EQ(dialer.state(), State::in_progress);
  EXPECT_THAT(dialer.explain_close(), HasSubstr("MCCL_JOB_KEY"));
}

/// A stranger sends a valid or an altered first message, then as many random bytes as are read.
TEST(Handshake, ReadsAndSendsFewBytesBeforeTheProof) {
  const Bytes hello = [] {
    const Handshake dialer = Handshake::dialer(party(2), 1, kKey);
    return Bytes(dialer.output().begin(), dialer.output().end());
  }();
  std::mt19937 random(1);
  std::size_t most_read = 0;
  for (int run = 0; run < 2000; ++run) {
    Handshake acceptor = Handshake::acceptor(party(1));
    std::size_t read = 0;
    while (const std::size_t n = acceptor.wanted()) {
      Bytes bytes(n);
      for (std::byte& byte : bytes) {
        const bool is_noise = read >= hello.size() || random() % 200 == 0;
        byte = is_noise ? static_cast<std::byte>(random()) : hello[read];
        ++read;
      }
      acceptor.feed(bytes);
    }
    EXPECT_EQ(acceptor.state(), State::refused);
    EXPECT_LE(acceptor.output().size(), 71u);
    most_read = std::max(most_read, read);
  }
  EXPECT_EQ(most_read, hello.size() + 36);
}

TEST(Handshake, DetectsNoiseByItsFirstBytes) {
  for (const std::string_view noise : {"G", "MCCX", "MC\n", "\x16\x03\x01"}) {
    Handshake acceptor = Handshake::acceptor(party(1));
    acceptor.feed(bytes_of(noise));
    EXPECT_EQ(acceptor.state(), State::refused);
    EXPECT_EQ(acceptor.refusal(), Refusal::noise);
    EXPECT_TRUE(acceptor.output().empty()) << "noise got an answer";
    EXPECT_EQ(acceptor.wanted(), 0u);
  }
}

TEST(Handshake, AMalformedHelloIsNotAnswered) {
  for (const std::size_t field : {6u, 7u}) {  // the role and the purpose
    Handshake dialer = Handshake::dialer(party(2), 1, kKey);
    Handshake acceptor = Handshake::acceptor(party(1));
    const Flip flip{true, field, std::byte{0xf0}};
    const Wires wires = pump(dialer, acceptor, &flip);
    EXPECT_EQ(acceptor.refusal(), Refusal::noise);
    EXPECT_TRUE(wires.to_dialer.empty());
  }
}

TEST(Handshake, BothSidesNameBothVersions) {
  const std::string ours = "version " + std::to_string(kProtocolVersion);
  const std::string theirs = "version " + std::to_string(kProtocolVersion ^ 0x10);
  const Flip flip{true, 4, std::byte{0x10}};
  Handshake dialer = Handshake::dialer(party(2), 1, kKey);
  Handshake acceptor = Handshake::acceptor(party(1));
  pump(dialer, acceptor, &flip);
  EXPECT_EQ(acceptor.refusal(), Refusal::version);
  EXPECT_THAT(acceptor.reason(), HasSubstr(theirs));
  EXPECT_THAT(acceptor.reason(), HasSubstr(ours));
  EXPECT_FALSE(acceptor.proven());

  const Flip back{false, 4, std::byte{0x10}};
  Handshake second_dialer = Handshake::dialer(party(2), 1, kKey);
  Handshake second_acceptor = Handshake::acceptor(party(1));
  pump(second_dialer, second_acceptor, &back);
  EXPECT_EQ(second_dialer.refusal(), Refusal::version);
  EXPECT_THAT(second_dialer.reason(), HasSubstr(theirs));
  EXPECT_THAT(second_dialer.reason(), HasSubstr(ours));
}

TEST(Handshake, SendsItsVersionToAnOlderPeer) {
  Handshake acceptor = Handshake::acceptor(party(1));
  acceptor.feed(bytes_of(std::string_view("MCCL\x08\x00", 6)));
  EXPECT_EQ(acceptor.refusal(), Refusal::version);
  Bytes expected;
  append(expected, bytes_of("MCCL"));
  append(expected, kProtocolVersion);
  EXPECT_EQ(text_of(acceptor.output()), text_of(expected));
}

TEST(Handshake, RecognisesAnotherRankOfTheJob) {
  Handshake dialer = Handshake::dialer(party(2), 1, kKey);
  Handshake acceptor = Handshake::acceptor(party(3));
  pump(dialer, acceptor);
  EXPECT_EQ(dialer.refusal(), Refusal::rank);
  EXPECT_EQ(acceptor.refusal(), Refusal::rank);
  EXPECT_TRUE(dialer.proven() && acceptor.proven());
  EXPECT_THAT(dialer.reason(), HasSubstr("rank 3"));
  EXPECT_THAT(dialer.reason(), HasSubstr("rank 1"));
}

TEST(Handshake, ReportsADifferentWorldSizeAsASetting) {
  Party other = party(1);
  other.size = 8;
  Handshake dialer = Handshake::dialer(party(2), 1, kKey);
  Handshake acceptor = Handshake::acceptor(other);
  pump(dialer, acceptor);
  for (const Handshake* end : {&dialer, &acceptor}) {
    EXPECT_EQ(end->refusal(), Refusal::settings);
    EXPECT_TRUE(end->proven());
    EXPECT_THAT(end->reason(), HasSubstr("4"));
    EXPECT_THAT(end->reason(), HasSubstr("8"));
  }
}

TEST(Handshake, ARankBeyondTheJobIsRefused) {
  for (const int rank : {4, -1, 1 << 30}) {
    Handshake dialer = Handshake::dialer(party(rank), 1, kKey);
    Handshake acceptor = Handshake::acceptor(party(1));
    pump(dialer, acceptor);
    EXPECT_EQ(acceptor.state(), State::refused);
    EXPECT_NE(dialer.state(), State::done);
  }
}

TEST(Handshake, SettingsThatDifferAreNamedOnBothSides) {
  Handshake dialer = Handshake::dialer(party(2, "chunk_bytes=65536\ncompression=none\n"), 1, kKey);
  Handshake acceptor = Handshake::acceptor(party(1));
  pump(dialer, acceptor);
  for (const Handshake* end : {&dialer, &acceptor}) {
    EXPECT_EQ(end->refusal(), Refusal::settings);
    EXPECT_TRUE(end->proven());
    EXPECT_THAT(end->reason(), HasSubstr("chunk_bytes"));
    EXPECT_THAT(end->reason(), HasSubstr("rank 2 has 65536"));
    EXPECT_THAT(end->reason(), HasSubstr("rank 1 has 4194304"));
    EXPECT_THAT(end->reason(), ::testing::Not(HasSubstr("compression")));
  }
}

TEST(Handshake, AReplayedDialerIsRefused) {
  Handshake dialer = Handshake::dialer(party(2), 1, kKey);
  Handshake acceptor = Handshake::acceptor(party(1));
  const Bytes recorded = pump(dialer, acceptor).to_acceptor;
  ASSERT_EQ(acceptor.state(), State::done);

  Handshake fresh = Handshake::acceptor(party(1));
  std::span<const std::byte> rest = recorded;
  while (fresh.wanted() > 0 && !rest.empty()) {
    const std::size_t n = std::min(fresh.wanted(), rest.size());
    fresh.feed(rest.first(n));
    rest = rest.subspan(n);
  }
  EXPECT_EQ(fresh.refusal(), Refusal::proof);
}

TEST(Handshake, AnEchoIsRefused) {
  Handshake dialer = Handshake::dialer(party(2), 1, kKey);
  while (dialer.state() == State::in_progress && !dialer.output().empty()) {
    const std::size_t n = std::min(dialer.wanted(), dialer.output().size());
    const Bytes bytes(dialer.output().begin(),
                      dialer.output().begin() + static_cast<std::ptrdiff_t>(n));
    dialer.sent(n);
    dialer.feed(bytes);
  }
  EXPECT_EQ(dialer.state(), State::refused);
}

TEST(Handshake, TwoDialersRefuseEachOther) {
  Handshake one = Handshake::dialer(party(2), 1, kKey);
  Handshake other = Handshake::dialer(party(1), 2, kKey);
  pump(one, other);
  EXPECT_EQ(one.state(), State::refused);
  EXPECT_EQ(other.state(), State::refused);
}

/// Acts as a member that knows the key but sends false settings with a valid proof.
Bytes lie(Handshake& acceptor, std::uint32_t agreement_bytes) {
  Bytes hello;
  append(hello, bytes_of("MCCL"));
  append(hello, kProtocolVersion);
  for (const unsigned char byte : {1, 0, 0}) append(hello, byte);
  append(hello, std::uint64_t{0});
  for (const std::uint32_t number : {2u, 1u, 4u}) append(hello, number);
  append(hello, make_nonce());
  std::span<const std::byte> rest = hello;
  while (!rest.empty()) {
    const std::size_t n = acceptor.wanted();
    acceptor.feed(rest.first(n));
    rest = rest.subspan(n);
  }
  Bytes sealed = hello;
  append(sealed, acceptor.output());
  Bytes proof;
  append(proof, agreement_bytes);
  append(sealed, proof);
  append(proof, prove("secret", "mccl dialer proof", sealed));
  return proof;
}

TEST(Handshake, BoundsLengthsBeforeAllocation) {
  Handshake honest = Handshake::acceptor(party(1));
  honest.feed(lie(honest, kMaxAgreementBytes));
  EXPECT_EQ(honest.state(), State::in_progress);
  EXPECT_TRUE(honest.proven());
  for (const std::uint32_t bytes : {std::uint32_t{kMaxAgreementBytes} + 1, 0xffffffffu}) {
    Handshake acceptor = Handshake::acceptor(party(1));
    acceptor.feed(lie(acceptor, bytes));
    EXPECT_EQ(acceptor.state(), State::refused);
    EXPECT_EQ(acceptor.wanted(), 0u);
  }
}

TEST(Handshake, NoncesNeverRepeat) {
  Handshake one = Handshake::dialer(party(2), 1, kKey);
  Handshake other = Handshake::dialer(party(2), 1, kKey);
  EXPECT_NE(Bytes(one.output().begin(), one.output().end()),
            Bytes(other.output().begin(), other.output().end()));
}

TEST(Proof, DependsOnKeyLabelAndData) {
  const Proof proof = prove("key", "label", bytes_of("data"));
  EXPECT_TRUE(same_proof(proof, prove("key", "label", bytes_of("data"))));
  EXPECT_FALSE(same_proof(proof, prove("kez", "label", bytes_of("data"))));
  EXPECT_FALSE(same_proof(proof, prove("key", "labem", bytes_of("data"))));
  EXPECT_FALSE(same_proof(proof, prove("key", "label", bytes_of("datb"))));
  EXPECT_FALSE(same_proof(proof, std::span(proof).first(31)));
  // RFC 4231 has no test vector with the label and the zero byte, so the exact value is not
  // checked.
  EXPECT_FALSE(same_proof(prove("", "label", {}), prove("key", "label", {})));
}

std::string between(std::string_view here, std::string_view there) {
  return difference({2, here}, {5, there});
}

TEST(Agreement, EqualTextsHaveNoDifference) {
  EXPECT_EQ(between("", ""), "");
  EXPECT_EQ(between("a=1\nb=2\n", "a=1\nb=2\n"), "");
}

TEST(Agreement, NamesEverySettingThatDiffersAndNoOther) {
  const std::string text = between("a=1\nb=2\nc=3\n", "a=1\nb=7\nc=8\n");
  EXPECT_THAT(text, HasSubstr("b (rank 2 has 2, rank 5 has 7)"));
  EXPECT_THAT(text, HasSubstr("c (rank 2 has 3, rank 5 has 8)"));
  EXPECT_THAT(text, Not(HasSubstr("a (")));
}

TEST(Agreement, NamesSettingsThatOneSideLacks) {
  EXPECT_THAT(between("a=1\n", "a=1\nb=2\n"),
              HasSubstr("b (rank 2 has no such setting, rank 5 has 2)"));
  EXPECT_THAT(between("a=\n", "a=2\n"), HasSubstr("a (rank 2 has nothing, rank 5 has 2)"));
}

TEST(Agreement, DependsOnTheOrderOfSettings) {
  EXPECT_THAT(between("a=1\nb=2\n", "b=2\na=1\n"), HasSubstr("version"));
}

TEST(Agreement, EscapesAndShortensTextFromThePeer) {
  const std::string text = between("a=1\n", "a=\x1b[2J\x01" + std::string(5000, 'x') + "\n");
  EXPECT_LT(text.size(), 1000u);
  for (const char c : text) EXPECT_TRUE(c >= ' ') << static_cast<int>(c);
  std::string many;
  for (int i = 0; i < 1000; ++i) many += "name" + std::to_string(i) + "=1\n";
  EXPECT_LT(between("", many).size(), 2000u);
  EXPECT_THAT(between("", many), HasSubstr("992 more"));
}

}  // namespace
}  // namespace mccl::rendezvous
