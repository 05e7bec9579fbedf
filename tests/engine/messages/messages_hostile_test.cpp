// An authenticated peer may still be faulty. Each invalid frame must end in an error that names the
// peer, and its data must not be used.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "mccl/error.h"
#include "mccl/group.h"
#include "support/messages_end.h"

namespace mccl::engine {
namespace {

using testing::HostilePeer;
using testing::MessagesEnd;

using Bytes = std::vector<std::byte>;

constexpr std::size_t kFrameLimit = std::size_t{4} << 20;

Frame frame_of(FrameKind kind, std::uint64_t number, std::uint64_t count,
               std::size_t payload_bytes) {
  Frame frame;
  frame.kind = kind;
  frame.call.collective = Collective::send;
  frame.call.tag = 1;
  frame.call.sequence = number;
  frame.call.count = count;
  frame.payload_bytes = static_cast<std::uint32_t>(payload_bytes);
  return frame;
}

Frame eager(std::uint64_t number, std::size_t bytes) {
  return frame_of(FrameKind::eager, number, bytes, bytes);
}
Frame request(std::uint64_t number, std::size_t bytes) {
  return frame_of(FrameKind::request, number, bytes, 0);
}
Frame piece(std::uint64_t number, std::size_t total, std::size_t index) {
  Frame frame =
      frame_of(FrameKind::data, number, total, std::min(kPieceBytes, total - index * kPieceBytes));
  frame.message = static_cast<std::uint32_t>(index);
  return frame;
}

/// Rank 0 waits for 32 bytes from rank 1, and other memory lies directly after its buffer.
class HostileMessages : public ::testing::Test {
 protected:
  static constexpr std::size_t kBytes = 32;

  void wait_for_bytes() { receives_ = victim_.receive(std::span(memory_).first(kBytes), 1, 1); }

  void expect_refusal(const std::string& words, std::size_t passes = 100) {
    try {
      for (std::size_t pass = 0; pass < passes; ++pass) victim_.advance();
      FAIL() << "nothing was refused, expected: " << words;
    } catch (const CorruptionError& error) {
      EXPECT_THAT(error.what(),
                  ::testing::AllOf(::testing::HasSubstr("rank 1"), ::testing::HasSubstr(words)));
    }
    EXPECT_EQ(memory_, Bytes(memory_.size()));
  }

  Bytes memory_ = Bytes(std::size_t{64} << 10);
  const Bytes junk_ = Bytes(kFrameLimit, std::byte{0xee});
  MessagesEnd victim_{0, 2, kFrameLimit};
  MessagesEnd::Call receives_;
};

TEST_F(HostileMessages, MoreBytesThanTheirCount) {
  HostilePeer peer(victim_);
  wait_for_bytes();
  peer.send(frame_of(FrameKind::eager, 1, kBytes, kEagerBytes),
            std::span(junk_).first(kEagerBytes));
  expect_refusal("a payload of 32768 bytes for a message of 32 u8");
}

TEST_F(HostileMessages, FewerBytesThanTheirCount) {
  for (const std::size_t bytes : {std::size_t{0}, kBytes - 1}) {
    MessagesEnd victim(0, 2, kFrameLimit);
    HostilePeer peer(victim);
    const auto receives = victim.receive(std::span(memory_).first(kBytes), 1, 1);
    peer.send(frame_of(FrameKind::eager, 1, kBytes, bytes), std::span(junk_).first(bytes));
    EXPECT_THROW(victim.advance(), CorruptionError) << bytes;
    EXPECT_FALSE(victim.done(receives));
  }
}

TEST_F(HostileMessages, ACountWhoseBytesOverflow) {
  HostilePeer peer(victim_);
  wait_for_bytes();
  Frame frame = frame_of(FrameKind::eager, 1, std::uint64_t{1} << 61, 0);
  frame.call.dtype = DType::f64;
  peer.send(frame);
  expect_refusal("a payload of 0 bytes for a message of 2305843009213693952 f64");
}

TEST_F(HostileMessages, AnEagerMessageThatIsTooLargeForOne) {
  HostilePeer peer(victim_);
  wait_for_bytes();
  peer.send(eager(1, kEagerBytes + 1));
  expect_refusal("32769 bytes");
}

TEST_F(HostileMessages, AFrameThatMayNotHaveBytes) {
  for (const FrameKind kind : {FrameKind::request, FrameKind::grant, FrameKind::credit}) {
    MessagesEnd victim(0, 2, kFrameLimit);
    HostilePeer peer(victim);
    victim.receive(std::span(memory_).first(kBytes), 1, 1);
    peer.send(frame_of(kind, 1, kBytes, 9), std::span(junk_).first(9));
    EXPECT_THROW(victim.advance(), CorruptionError);
  }
}

TEST_F(HostileMessages, ARepeatedSequenceNumber) {
  HostilePeer peer(victim_);
  Bytes others(kBytes);
  victim_.receive(others, 1, 2);
  wait_for_bytes();
  Frame other = eager(1, kBytes);
  other.call.tag = 2;
  peer.send(other, std::span(junk_).first(kBytes));
  peer.send(request(1, kBytes));
  expect_refusal("message number 1 where number 2 was expected");
}

TEST_F(HostileMessages, ASkippedSequenceNumber) {
  HostilePeer peer(victim_);
  wait_for_bytes();
  peer.send(eager(2, kBytes), std::span(junk_).first(kBytes));
  expect_refusal("message number 2 where number 1 was expected");
}

TEST_F(HostileMessages, MoreMessagesThanCredit) {
  HostilePeer peer(victim_, 1, std::size_t{16} << 20);
  wait_for_bytes();
  for (std::uint64_t i = 1; i <= kEagerCredit / kEagerOverhead + 1; ++i) {
    Frame other = eager(i, 0);
    other.call.tag = 2;
    peer.send(other);
  }
  expect_refusal("beyond its credit");
}

TEST_F(HostileMessages, MoreAnnouncementsThanAreKept) {
  HostilePeer peer(victim_, 1, std::size_t{64} << 20);
  wait_for_bytes();
  for (std::uint64_t i = 1; i <= kMostKept + 1; ++i) {
    Frame other = request(i, kBytes);
    other.call.tag = 2;
    peer.send(other);
  }
  expect_refusal("for which no receive was posted", kMostKept);
}

TEST_F(HostileMessages, MoreCreditThanWasLent) {
  HostilePeer peer(victim_);
  wait_for_bytes();
  victim_.send(std::span(junk_).first(8), 1, 1);
  peer.send(frame_of(FrameKind::credit, 0, 8 + kEagerOverhead + 1, 0));
  expect_refusal("returned 265 bytes of credit, but only 264 are in use");
}

TEST_F(HostileMessages, AGrantWithoutAnAnnouncement) {
  HostilePeer peer(victim_);
  wait_for_bytes();
  peer.send(frame_of(FrameKind::grant, 1, 0, 0));
  expect_refusal("message number 1, which was not announced");
}

TEST_F(HostileMessages, ASecondGrant) {
  HostilePeer peer(victim_);
  wait_for_bytes();
  victim_.send(junk_, 1, 1);
  peer.send(frame_of(FrameKind::grant, 1, 0, 0));
  peer.send(frame_of(FrameKind::grant, 1, 0, 0));
  expect_refusal("message number 1, which was not announced");
}

TEST_F(HostileMessages, AClaimToHavePulledAMessage) {
  HostilePeer peer(victim_);
  wait_for_bytes();
  victim_.send(junk_, 1, 1);
  peer.send(frame_of(FrameKind::pulled, 1, 0, 0));
  expect_refusal("has copied message number 1, whose address was not sent to it");
}

/// The link still has to send the address, which belongs to the send.
TEST_F(HostileMessages, AClaimToHavePulledAMessageWhoseAddressIsNotSentYet) {
  HostilePeer peer(victim_, 1, kFrameBytes);
  peer.link().lend_memory();
  wait_for_bytes();
  victim_.send(junk_, 1, 1);
  victim_.advance();
  peer.send(frame_of(FrameKind::pulled, 1, 0, 0));
  expect_refusal("has copied message number 1, whose address was not sent to it");
}

TEST_F(HostileMessages, ASecondClaimToHavePulledAMessage) {
  HostilePeer peer(victim_);
  peer.link().lend_memory();
  wait_for_bytes();
  victim_.send(junk_, 1, 1);
  victim_.advance();
  peer.send(frame_of(FrameKind::pulled, 1, 0, 0));
  peer.send(frame_of(FrameKind::pulled, 1, 0, 0));
  expect_refusal("has copied message number 1, whose address was not sent to it");
}

TEST_F(HostileMessages, AnEmptyPiece) {
  HostilePeer peer(victim_);
  wait_for_bytes();
  peer.send(piece(1, kBytes, 0), std::span(junk_).first(kBytes));
  expect_refusal("a piece of message number 1, which was not asked for");
}

TEST_F(HostileMessages, CollectivesAmongMessages) {
  HostilePeer peer(victim_);
  wait_for_bytes();
  peer.send(frame_of(FrameKind::collective, 1, kBytes, kBytes), std::span(junk_).first(kBytes));
  expect_refusal("a collective's data");
}

TEST_F(HostileMessages, AMessageThatDescribesAnotherCall) {
  for (const auto change : {+[](Call& call) { call.collective = Collective::all_reduce; },
                            +[](Call& call) { call.root = 0; }}) {
    MessagesEnd victim(0, 2, kFrameLimit);
    HostilePeer peer(victim);
    victim.receive(std::span(memory_).first(kBytes), 1, 1);
    Frame frame = eager(1, kBytes);
    change(frame.call);
    peer.send(frame, std::span(junk_).first(kBytes));
    EXPECT_THROW(victim.advance(), CorruptionError);
  }
}

TEST_F(HostileMessages, AnAnnouncementOnALinkForPieces) {
  HostilePeer peer(victim_, 2);
  wait_for_bytes();
  peer.send(eager(1, kBytes), std::span(junk_).first(kBytes), 1);
  expect_refusal("a link that carries only pieces of messages");
}

/// Rank 0 has granted a message of three pieces.
class HostilePieces : public HostileMessages {
 protected:
  static constexpr std::size_t kTotal = 2 * kPieceBytes + 100;

  void SetUp() override {
    receives_ = victim_.receive(large_, 1, 1);
    peer_.send(request(1, kTotal));
    victim_.advance();
  }

  std::span<const std::byte> bytes(std::size_t n) const { return std::span(junk_).first(n); }

  Bytes large_ = Bytes(kTotal);
  HostilePeer peer_{victim_, 2};
};

TEST_F(HostilePieces, ARepeatedPiece) {
  peer_.send(piece(1, kTotal, 0), bytes(kPieceBytes));
  peer_.send(piece(1, kTotal, 0), bytes(kPieceBytes));
  expect_refusal("piece 0 for recv from rank 1 (message 1, tag 1, 524388 u8) twice");
}

/// Neither copy of the piece is complete when the other begins.
TEST_F(HostilePieces, TheSamePieceOnTwoLinks) {
  peer_.send(piece(1, kTotal, 2), bytes(50), 0);
  peer_.send(piece(1, kTotal, 2), bytes(50), 1);
  expect_refusal("twice");
}

TEST_F(HostilePieces, APieceBeyondTheEnd) {
  Frame frame = piece(1, kTotal, 2);
  frame.message = 3;
  peer_.send(frame, bytes(100));
  expect_refusal("piece 3");
}

TEST_F(HostilePieces, APieceWithTheLargestNumber) {
  Frame frame = piece(1, kTotal, 2);
  frame.message = std::numeric_limits<std::uint32_t>::max();
  peer_.send(frame, bytes(100));
  expect_refusal("piece 4294967295");
}

TEST_F(HostilePieces, APieceOfAnotherSize) {
  for (const std::size_t size : {std::size_t{0}, std::size_t{99}, std::size_t{101}, kPieceBytes}) {
    MessagesEnd victim(0, 2, kFrameLimit);
    HostilePeer peer(victim);
    Bytes memory(kTotal);
    victim.receive(memory, 1, 1);
    peer.send(request(1, kTotal));
    Frame frame = piece(1, kTotal, 2);
    frame.payload_bytes = static_cast<std::uint32_t>(size);
    peer.send(frame, bytes(size));
    EXPECT_THROW(victim.advance(), CorruptionError) << size;
    EXPECT_EQ(memory, Bytes(kTotal));
  }
}

TEST_F(HostilePieces, APieceOfAnotherMessage) {
  for (const auto change : {+[](Call& call) { call.count -= 1; }, +[](Call& call) { call.tag = 2; },
                            +[](Call& call) { call.dtype = DType::i8; }}) {
    MessagesEnd victim(0, 2, kFrameLimit);
    HostilePeer peer(victim);
    Bytes memory(kTotal);
    victim.receive(memory, 1, 1);
    peer.send(request(1, kTotal));
    Frame frame = piece(1, kTotal, 0);
    change(frame.call);
    peer.send(frame, bytes(kPieceBytes));
    EXPECT_THROW(victim.advance(), CorruptionError);
  }
}

/// Once the receive has been given up, the rest of a piece on another link must not be written to
/// its memory.
TEST_F(HostilePieces, ALinkThatEndsInTheMiddleOfAPieceOfAnotherLink) {
  Bytes other(1);
  const auto from_any = victim_.receive(other, kAnySource, 7);
  peer_.send(piece(1, kTotal, 0), bytes(50), 0);
  peer_.send(piece(1, kTotal, 1), bytes(60), 1);
  victim_.advance();
  peer_.end_link(0);
  try {
    for (int pass = 0; pass < 10; ++pass) victim_.advance();
    FAIL() << "the end of a link was not noticed";
  } catch (const MemberGone& gone) {
    peer_.link(1).write(bytes(kPieceBytes - 60));
    auto ended = victim_.messages().give_up(gone.member(), gone.whole());
    ASSERT_TRUE(ended);
    EXPECT_EQ(ended->pop_front(), receives_);
    EXPECT_TRUE(ended->empty());
  }
  large_.assign(large_.size(), std::byte{});
  for (int pass = 0; pass < 10; ++pass) ASSERT_NO_THROW(victim_.advance());
  EXPECT_EQ(large_, Bytes(large_.size())) << "memory of a call that has ended was written";
  EXPECT_FALSE(victim_.done(from_any));
}

/// Credit that cannot be returned, because the peer has left, is no error while no pending call
/// needs that peer.
TEST_F(HostileMessages, CreditForAPeerThatHasLeftIsNoFailure) {
  HostilePeer peer(victim_, 1, kFrameLimit);
  constexpr std::size_t kMessages = kEagerCredit / 4 / kEagerBytes + 1;
  std::vector<MessagesEnd::Call> receives;
  Bytes got(kEagerBytes);
  for (std::size_t i = 1; i <= kMessages; ++i) {
    peer.send(eager(i, kEagerBytes), std::span(junk_).first(kEagerBytes));
    receives.push_back(victim_.receive(got, kAnySource, 1));
  }
  Bytes more(1);
  victim_.receive(more, kAnySource, 3);  // pending: another rank may still send to it
  peer.leave();
  for (int pass = 0; pass < 100; ++pass) ASSERT_NO_THROW(victim_.advance());
  EXPECT_TRUE(victim_.done(receives.back()));
}

TEST_F(HostileMessages, AGrantForAPeerThatHasLeftIsAFailure) {
  HostilePeer peer(victim_);
  wait_for_bytes();
  peer.send(request(1, kBytes));
  peer.leave();
  EXPECT_THROW(
      {
        for (int pass = 0; pass < 100; ++pass) victim_.advance();
      },
      PeerError);
}

}  // namespace
}  // namespace mccl::engine
