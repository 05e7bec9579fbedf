// Tests messages that are sent or received immediately, without being posted, and their order among
// posted messages.
#include <gtest/gtest.h>

#include <random>

#include "mccl/error.h"
#include "support/messages_end.h"

namespace mccl::engine {
namespace {

using testing::HostilePeer;
using testing::MemoryLink;
using testing::MessagesEnd;
using testing::MessagesPair;

using Bytes = std::vector<std::byte>;

Bytes filled(std::size_t n, std::size_t seed) { return Bytes(n, static_cast<std::byte>(seed)); }

TEST(MessagesAtOnce, PassASmallMessageWithoutAPass) {
  MessagesPair pair;
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{4096}, kEagerBytes}) {
    const Bytes sent = filled(bytes, bytes + 1);
    Bytes got(bytes);
    EXPECT_FALSE(pair.second.receive_at_once(got, 0, 3));
    EXPECT_EQ(pair.first.send_at_once(sent, 1, 3), nullptr) << bytes;
    EXPECT_TRUE(pair.second.receive_at_once(got, 0, 3)) << bytes;
    EXPECT_EQ(got, sent);
  }
  EXPECT_TRUE(pair.first.messages().idle());
  EXPECT_TRUE(pair.second.messages().idle());
}

TEST(MessagesAtOnce, LeaveAMessageWithAnotherTagToPostedReceives) {
  MessagesPair pair;
  const Bytes one = filled(8, 1), two = filled(8, 2);
  Bytes got_one(8), got_two(8);
  pair.first.send_at_once(one, 1, 1);
  pair.first.send_at_once(two, 1, 2);
  EXPECT_FALSE(pair.second.receive_at_once(got_two, 0, 2));
  const auto later = pair.second.receive(got_two, 0, 2);
  pair.settle();
  EXPECT_TRUE(pair.second.done(later));
  EXPECT_EQ(got_two, two);
  EXPECT_FALSE(pair.second.receive_at_once(got_one, 0, 1))
      << "the message is no longer in the link";
  EXPECT_TRUE(pair.second.done(pair.second.receive(got_one, 0, 1)));
  EXPECT_EQ(got_one, one);
}

TEST(MessagesAtOnce, ReturnCreditSoThatAOneWayStreamGoesOn) {
  MessagesPair pair;
  const Bytes sent = filled(kEagerBytes, 7);
  Bytes got(kEagerBytes);
  for (std::size_t bytes = 0; bytes < 3 * kEagerCredit; bytes += kEagerBytes) {
    const auto call = pair.first.send_at_once(sent, 1, 0);
    if (call) {
      // The returned credit is still in the link. The posted send reads it in advance().
      pair.first.advance();
      const auto receives = pair.second.receive(got, 0, 0);
      pair.settle();
      EXPECT_TRUE(pair.second.done(receives));
    } else {
      ASSERT_TRUE(pair.second.receive_at_once(got, 0, 0));
    }
    ASSERT_EQ(got, sent);
  }
}

TEST(MessagesAtOnce, SatisfyAPeerThatWaitsForRoom) {
  MessagesPair pair;
  const Bytes sent = filled(8, 1);
  Bytes got(8);
  pair.first.send_at_once(sent, 1, 0);
  pair.second.messages().take_in(GroupRank(0), 1);
  EXPECT_TRUE(pair.second.receive_at_once(got, 0, 0));
  EXPECT_TRUE(pair.second.messages().idle());
}

TEST(MessagesAtOnce, RefuseAMessageOfAnotherSize) {
  MessagesPair pair;
  const Bytes sent = filled(8, 1);
  Bytes got(4);
  pair.first.send_at_once(sent, 1, 0);
  EXPECT_THROW(pair.second.receive_at_once(got, 0, 0), MismatchError);
}

TEST(MessagesAtOnce, RefuseForeignFrames) {
  const Bytes payload = filled(8, 1);
  Frame good;
  good.kind = FrameKind::eager;
  good.call = {.collective = Collective::send, .count = 8, .sequence = 1};
  good.payload_bytes = 8;
  Frame skipped = good;
  skipped.call.sequence = 2;
  Frame too_long = good;
  too_long.call.count = too_long.payload_bytes = kEagerBytes + 1;
  for (const Frame& frame : {skipped, too_long}) {
    MessagesEnd victim(0, 2, std::size_t{4} << 20);
    HostilePeer hostile(victim);
    hostile.send(frame, filled(frame.payload_bytes, 1));
    Bytes got(frame.payload_bytes);
    EXPECT_THROW(victim.receive_at_once(got, 1, 0), CorruptionError);
  }
  MessagesEnd expects_checksums(0, 2, std::size_t{4} << 20, true);
  HostilePeer hostile(expects_checksums);
  hostile.send(good, payload);
  Bytes got(payload.size());
  EXPECT_THROW(expects_checksums.receive_at_once(got, 1, 0), CorruptionError);
}

TEST(MessagesAtOnce, HaveChecksumsIfTheJobWantsThem) {
  MessagesPair pair(MemoryLink::kUsualCapacity, 1, std::size_t{4} << 20, true);
  const Bytes sent = filled(8, 1);
  Bytes got(8);
  pair.first.send_at_once(sent, 1, 0);
  EXPECT_TRUE(pair.second.receive_at_once(got, 0, 0));
  EXPECT_EQ(got, sent);
}

TEST(MessagesAtOnce, EndWithThePeer) {
  MessagesEnd victim(0, 2, std::size_t{4} << 20);
  HostilePeer peer(victim);
  peer.leave();
  Bytes bytes(8);
  EXPECT_THROW(victim.receive_at_once(bytes, 1, 0), transport::LinkClosed);
  EXPECT_NE(victim.send_at_once(bytes, 1, 0), nullptr) << "the send was not posted";
  EXPECT_THROW(victim.advance(), MemberGone);
}

/// One of many messages in one direction.
struct Message {
  std::uint32_t tag = 0;
  Bytes sent, got;
  MessagesEnd::Call receives;  ///< Null if the message was received without being posted.
};

/// Sends random messages over links that accept only parts of them. Each message is sent and
/// received either immediately or posted. Messages of one tag must arrive in order.
void mix(unsigned seed) {
  std::mt19937 random(seed);
  const auto up_to = [&](std::size_t most) { return random() % (most + 1); };
  MessagesPair pair(100 + up_to(80'000), 1 + static_cast<int>(up_to(1)));
  std::vector<Message> messages(60);
  std::size_t number = 0;
  for (Message& each : messages) {
    each.tag = static_cast<std::uint32_t>(up_to(2));
    each.sent = filled(up_to(1) ? up_to(200) : up_to(50'000), ++number);
    each.got = filled(each.sent.size(), 0);
  }
  std::size_t to_send = 0, to_receive = 0;
  std::vector<MessagesEnd::Call> sends;
  while (to_send < messages.size() || to_receive < messages.size()) {
    if (to_send < messages.size() && up_to(1)) {
      Message& next = messages[to_send++];
      sends.push_back(up_to(1) ? pair.first.send_at_once(next.sent, 1, next.tag)
                               : pair.first.send(next.sent, 1, next.tag));
    }
    if (to_receive < messages.size() && up_to(1)) {
      Message& next = messages[to_receive++];
      if (up_to(2) == 0 || !pair.second.receive_at_once(next.got, 0, next.tag))
        next.receives = pair.second.receive(next.got, 0, next.tag);
    }
    if (up_to(2) == 0) pair.first.advance();
    if (up_to(2) == 0) pair.second.advance();
  }
  pair.settle();
  for (const Message& each : messages) {
    EXPECT_TRUE(!each.receives || pair.second.done(each.receives)) << seed;
    ASSERT_EQ(each.got, each.sent) << seed;
  }
  for (const auto& send : sends) EXPECT_TRUE(!send || pair.first.done(send)) << seed;
}

TEST(MessagesAtOnce, StayInOrderWithPostedReceives) {
  for (unsigned seed = 0; seed < 300; ++seed) mix(seed);
}

}  // namespace
}  // namespace mccl::engine
