// Tests the order of messages, how many bytes may wait at the receiver, and that delivered messages
// stay delivered.
#include "engine/messages/messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "mccl/error.h"
#include "support/messages_end.h"

namespace mccl::engine {
namespace {

using testing::MemoryLink;
using testing::MessagesEnd;
using testing::MessagesPair;

using Bytes = std::vector<std::byte>;

constexpr std::size_t kLarge = std::size_t{8} << 20;

Bytes pattern(std::size_t n, unsigned seed) {
  std::mt19937 random(seed);
  Bytes bytes(n);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

std::vector<const Operation*> calls_of(const OperationList& list) {
  std::vector<const Operation*> calls;
  for (const Operation& call : list) calls.push_back(&call);
  return calls;
}

/// A large message from the first end to the second. A small part of it has arrived.
struct LargeOnItsWay : MessagesPair {
  explicit LargeOnItsWay(std::size_t link_capacity = MemoryLink::kUsualCapacity, int rails = 1)
      : MessagesPair(link_capacity, rails), large(pattern(kLarge, 1)), got(kLarge) {
    receives = second.receive(got, 0, 1);
    sends = first.send(large, 1, 1);
    while (receives->traffic.bytes_received < kLarge / 8) {
      first.advance();
      second.advance();
    }
  }

  std::size_t arrived() const { return receives->traffic.bytes_received; }

  Bytes large, got;
  MessagesEnd::Call sends, receives;
};

TEST(Messages, ASmallMessageOvertakesALargeOneInPieces) {
  for (const int rails : {1, 2}) {
    LargeOnItsWay pair(MemoryLink::kUsualCapacity, rails);
    const Bytes small = pattern(8, 2);
    Bytes got(8);
    const auto receives = pair.second.receive(got, 0, 2);
    const std::size_t before = pair.arrived();
    pair.first.send(small, 1, 2);
    while (!pair.second.done(receives)) {
      pair.first.advance();
      pair.second.advance();
    }
    EXPECT_EQ(got, small);
    // Only bytes that are in the links, and the rest of pieces that have begun, may arrive before
    // the small message.
    const std::size_t ahead =
        (kPieceBytes + 2 * MemoryLink::kUsualCapacity) * static_cast<std::size_t>(rails);
    EXPECT_LE(pair.arrived() - before, ahead + kPassBytes) << rails;
    EXPECT_FALSE(pair.second.done(pair.receives));
    pair.settle();
    EXPECT_TRUE(pair.first.done(pair.sends));
    EXPECT_EQ(pair.got, pair.large);
  }
}

/// Requests, grants and credit overtake pieces too, like small messages.
TEST(Messages, InterleavesTheStartOfASecondLargeMessageWithTheFirst) {
  LargeOnItsWay pair;
  const Bytes other = pattern(kPieceBytes, 3);
  Bytes got(other.size());
  const auto receives = pair.second.receive(got, 0, 2);
  pair.first.send(other, 1, 2);
  while (!pair.second.done(receives)) {
    pair.first.advance();
    pair.second.advance();
  }
  EXPECT_LT(pair.arrived(), kLarge / 2);
  EXPECT_EQ(got, other);
}

TEST(Messages, PiecesOfSeveralMessagesTakeTurns) {
  LargeOnItsWay pair;
  constexpr std::size_t kOthers = 3;
  const Bytes data = pattern(kLarge / 2, 4);
  std::vector<Bytes> got(kOthers, Bytes(data.size()));
  std::vector<MessagesEnd::Call> receives;
  for (std::size_t i = 0; i < kOthers; ++i) {
    receives.push_back(pair.second.receive(got[i], 0, 2));
    pair.first.send(data, 1, 2);
  }
  while (!pair.second.done(receives.back())) {
    pair.first.advance();
    pair.second.advance();
    if (receives.back()->traffic.bytes_received == 0) continue;
    // Once all messages have begun, none is more than two pieces ahead of another.
    for (std::size_t i = 1; i < kOthers; ++i) {
      EXPECT_NEAR(static_cast<double>(receives[i]->traffic.bytes_received),
                  static_cast<double>(receives[i - 1]->traffic.bytes_received), 2.0 * kPieceBytes);
    }
  }
  pair.settle();
  EXPECT_EQ(pair.got, pair.large);
  for (const Bytes& one : got) EXPECT_EQ(one, data);
}

TEST(Messages, OfOneTagArriveInOrderWhateverTheirSizes) {
  for (const int rails : {1, 3}) {
    MessagesPair pair(std::size_t{8} << 10, rails);
    std::vector<Bytes> sent, got;
    for (unsigned i = 0; i < 60; ++i) {
      const std::size_t sizes[] = {0, 1, kEagerBytes, kEagerBytes + 1, kPieceBytes * 3 + 5};
      sent.push_back(pattern(sizes[i % 5], i));
      got.emplace_back(sent.back().size());
    }
    for (const Bytes& data : sent) pair.first.send(data, 1, 9);
    for (Bytes& data : got) pair.second.receive(data, 0, 9);
    pair.settle();
    EXPECT_EQ(got, sent);
    EXPECT_TRUE(pair.first.messages().pending().empty());
    EXPECT_TRUE(pair.second.messages().pending().empty());
  }
}

/// The links accept and deliver everything, so only the limit of a pass ends it.
TEST(Messages, OnePassMovesABoundedAmountOnEachWay) {
  LargeOnItsWay pair(kLarge);
  const std::size_t sent = pair.sends->traffic.bytes_sent;
  ASSERT_LT(sent, kLarge / 2) << "a few passes have sent most of the message";
  pair.first.advance();
  EXPECT_LE(pair.sends->traffic.bytes_sent - sent, kPassBytes + kPieceBytes);
  for (int pass = 0; pass < 8; ++pass) pair.first.advance();
  const std::size_t before = pair.arrived();
  pair.second.advance();
  EXPECT_LE(pair.arrived() - before, kPassBytes + kPieceBytes);
  EXPECT_GT(pair.arrived(), before);
}

TEST(Messages, OnePassTakesABoundedNumberOfEmptyMessages) {
  MessagesPair pair(kLarge);
  constexpr std::size_t kMessages = 4 * kPassBytes / kFrameCost;
  for (std::size_t i = 0; i < kMessages; ++i) pair.first.send({}, 1, 1);
  std::vector<MessagesEnd::Call> receives;
  for (std::size_t i = 0; i < kMessages; ++i) receives.push_back(pair.second.receive({}, 0, 1));
  while (pair.first.advance()) pair.first.messages().take_finished();
  pair.second.advance();
  EXPECT_TRUE(pair.second.done(receives.front()));
  EXPECT_FALSE(pair.second.done(receives[kMessages / 2]));
  pair.settle();
  EXPECT_TRUE(pair.second.done(receives.back()));
}

/// Frames may be smaller than the limit for eager messages.
TEST(Messages, OfEverySizePassWhereFramesAreSmall) {
  constexpr std::size_t kLimit = 4 << 10;
  for (const std::size_t size : {kLimit - 1, kLimit, kLimit + 1, kEagerBytes - 1, kEagerBytes,
                                 kEagerBytes + 1, 10 * kEagerBytes}) {
    MessagesPair pair(MemoryLink::kUsualCapacity, 1, kLimit);
    const Bytes data = pattern(size, 5);
    Bytes got(size);
    const auto receives = pair.second.receive(got, 0, 1);
    const auto sends = pair.first.send(data, 1, 1);
    pair.settle();
    EXPECT_TRUE(pair.first.done(sends)) << size;
    EXPECT_TRUE(pair.second.done(receives)) << size;
    EXPECT_EQ(got, data);
  }
}

/// A sender with more requests than a receiver may keep holds the rest back, in order.
TEST(Messages, AnyNumberMayWaitForReceives) {
  MessagesPair pair;
  std::vector<std::uint64_t> data(kMostKept + 5), got(data.size());
  std::iota(data.begin(), data.end(), 1);
  MessagesEnd::Call last;
  for (const std::uint64_t& each : data)
    last = pair.first.send(std::as_bytes(std::span(&each, 1)), 1, 1);
  // The receiver reads all that is sent, because it waits for another message.
  std::uint64_t other = 0;
  pair.second.receive(std::as_writable_bytes(std::span(&other, 1)), 0, 2);
  pair.settle();
  EXPECT_FALSE(pair.first.send_at_once(std::as_bytes(std::span(&data[6], 1)), 1, 2) == nullptr)
      << "a later message would overtake those that are held";
  for (std::uint64_t& each : got)
    pair.second.receive(std::as_writable_bytes(std::span(&each, 1)), 0, 1);
  pair.settle();
  EXPECT_EQ(got, data);
  EXPECT_EQ(other, data[6]);
  EXPECT_TRUE(pair.first.done(last));
}

TEST(Messages, CreditBoundsEmptyMessages) {
  MessagesPair pair;
  constexpr std::size_t kFree = kEagerCredit / kEagerOverhead;
  constexpr std::size_t kMessages = kFree + 100;
  const Bytes looked_for(1);
  Bytes other(1);
  const auto looks = pair.second.receive(other, 0, 2);
  std::vector<MessagesEnd::Call> sends, receives;
  for (std::size_t i = 0; i < kMessages; ++i) sends.push_back(pair.first.send({}, 1, 1));
  pair.settle();
  std::size_t done = 0;
  while (done < kMessages && pair.first.done(sends[done])) ++done;
  EXPECT_EQ(done, kFree) << "credit allows kFree messages to wait at the receiver";

  for (std::size_t i = 0; i < kMessages; ++i) receives.push_back(pair.second.receive({}, 0, 1));
  pair.settle();
  EXPECT_TRUE(pair.first.done(sends.back()));
  EXPECT_TRUE(pair.second.done(receives.back()));
  const auto last = pair.first.send(looked_for, 1, 2);
  pair.settle();
  EXPECT_TRUE(pair.first.done(last));
  EXPECT_TRUE(pair.second.done(looks));
  EXPECT_TRUE(pair.first.messages().idle());
  EXPECT_TRUE(pair.second.messages().idle());
}

TEST(Messages, ReturnsCredit) {
  MessagesPair pair;
  const Bytes data = pattern(kEagerBytes, 6);
  Bytes got(kEagerBytes);
  for (std::size_t i = 0; i < 4 * kEagerCredit / kEagerBytes; ++i) {
    const auto sends = pair.first.send(data, 1, 1);
    const auto receives = pair.second.receive(got, 0, 1);
    pair.settle();
    ASSERT_TRUE(pair.first.done(sends) && pair.second.done(receives)) << i;
  }
}

TEST(Messages, DeliveredMessagesCompleteIfThePassThrows) {
  MessagesPair pair;
  const Bytes good = pattern(10, 7), bad = pattern(11, 8);
  Bytes got(10), other(10);
  const auto first = pair.second.receive(got, 0, 1);
  const auto second = pair.second.receive(other, 0, 1);
  pair.first.send(good, 1, 1);
  pair.first.send(bad, 1, 1);
  pair.first.advance();
  EXPECT_THROW(pair.second.advance(), MismatchError);
  EXPECT_TRUE(pair.second.done(first));
  EXPECT_FALSE(pair.second.done(second));
  EXPECT_EQ(got, good);
}

TEST(Messages, KeepsDeliveredMessages) {
  MessagesPair pair;
  const Bytes data = pattern(10, 9);
  Bytes got(10), other(10);
  const auto looks = pair.second.receive(other, 0, 2);
  pair.first.send(data, 1, 1);
  pair.settle();
  const auto receives = pair.second.receive(got, 0, 1);  // the message has arrived already
  const OperationList dropped = pair.second.messages().drop_all();
  EXPECT_EQ(calls_of(dropped), std::vector<const Operation*>{looks.get()});
  EXPECT_TRUE(pair.second.done(receives));
  EXPECT_EQ(got, data);
  EXPECT_TRUE(pair.second.messages().idle());
}

TEST(Messages, PendingNamesEachCallOnce) {
  LargeOnItsWay pair(MemoryLink::kUsualCapacity, 3);
  const Bytes data = pattern(100, 10);
  const auto small = pair.first.send(data, 1, 2);
  const std::vector<const Operation*> expected{pair.sends.get(), small.get()};
  EXPECT_EQ(calls_of(pair.first.messages().pending()), expected);
  EXPECT_EQ(calls_of(pair.second.messages().pending()),
            std::vector<const Operation*>{pair.receives.get()});
}

/// The messages exceed the capacity of the links, and each rank receives only after all its sends.
TEST(Messages, RanksThatBothSendFirstDoNotDeadlock) {
  constexpr std::size_t kMessages = 3000;
  constexpr std::size_t kBytes = 1000;
  static_assert(kMessages * (kBytes + kEagerOverhead) <= kEagerCredit);
  MessagesPair pair(std::size_t{16} << 10);
  const Bytes data = pattern(kBytes, 11);
  for (std::size_t i = 0; i < kMessages; ++i) {
    pair.first.send(data, 1, 1);
    pair.second.send(data, 0, 1);
  }
  pair.settle();
  const bool first_is_done = pair.first.messages().pending().empty();
  EXPECT_TRUE(first_is_done || pair.second.messages().pending().empty());
  std::vector<Bytes> got(2 * kMessages, Bytes(kBytes));
  const auto receive_all = [&](MessagesEnd& end, int from) {
    for (std::size_t i = 0; i < kMessages; ++i) {
      end.receive(got[static_cast<std::size_t>(from) * kMessages + i], from, 1);
    }
    pair.settle();
  };
  receive_all(first_is_done ? pair.first : pair.second, first_is_done ? 1 : 0);
  receive_all(first_is_done ? pair.second : pair.first, first_is_done ? 0 : 1);
  EXPECT_TRUE(pair.first.messages().pending().empty());
  EXPECT_TRUE(pair.second.messages().pending().empty());
  for (const Bytes& one : got) ASSERT_EQ(one, data);
}

/// Walking a list for each message would take minutes here.
TEST(Messages, TheCostPerMessageDoesNotGrowWithTheNumberInFlight) {
  constexpr std::uint32_t kMessages = 100'000;
  for (const bool receives_first : {true, false}) {
    MessagesPair pair;
    std::vector<std::byte> out(4), in(std::size_t{4} * kMessages);
    const auto receive_all = [&] {
      for (std::uint32_t tag = kMessages; tag-- > 0;) {
        pair.second.receive(std::span(in).subspan(4 * tag, 4), 0, tag);
      }
    };
    if (receives_first) receive_all();
    for (std::uint32_t tag = 0; tag < kMessages; ++tag) pair.first.send(out, 1, tag);
    pair.settle();
    if (!receives_first) receive_all();
    pair.settle();
    EXPECT_TRUE(pair.first.messages().pending().empty());
    EXPECT_TRUE(pair.second.messages().pending().empty());
  }
}

TEST(Messages, TheTimeoutOfASendReportsThatNoReceiveWasPosted) {
  MessagesPair pair;
  const Bytes data = pattern(kEagerBytes + 1, 12);
  const auto send = pair.first.send(data, 1, 1);
  pair.settle();
  EXPECT_THAT(pair.first.messages().why_late(*send),
              ::testing::HasSubstr(", has not posted a receive"));
  EXPECT_EQ(pair.first.messages().cancel(*send), nullptr)
      << "a send whose bytes may be in flight was cancelled";
}

TEST(Messages, ReportsOnlyOverdueMessages) {
  MessagesPair pair;
  std::vector<std::byte> data(4);
  const auto now = Clock::now();
  const auto receive = pair.second.receive(data, 0, 1, now + std::chrono::seconds(1));
  EXPECT_EQ(pair.second.messages().find_late(now), nullptr);
  EXPECT_EQ(pair.second.messages().find_late(now + std::chrono::seconds(1)), receive.get());
  EXPECT_EQ(pair.second.messages().cancel(*receive), receive);
  EXPECT_EQ(pair.second.messages().find_late(now + std::chrono::seconds(1)), nullptr);
  EXPECT_TRUE(pair.second.messages().idle());
}

/// The sender's links end one after another. The data of each is read before its end takes effect.
TEST(Messages, MessagesOfADepartedSenderArriveWholeOverSeveralLinks) {
  constexpr std::size_t kBytes = 512 << 10;
  constexpr std::size_t kRoom = 4 << 20;
  const std::vector<std::byte> in(kBytes, std::byte{7});
  std::vector<std::byte> out(kBytes);
  auto first = std::make_unique<MessagesEnd>(0, 2, kRoom);
  MessagesEnd second(1, 2, kRoom);
  for (std::uint8_t rail = 0; rail < 2; ++rail) {
    auto [near, far] = MemoryLink::make(kRoom);
    first->attach(1, rail, 2, std::move(near));
    second.attach(0, rail, 2, std::move(far));
  }
  const auto sent = first->send(in, 1, 5);
  const auto received = second.receive(out, 0, 5);
  first->advance();
  second.advance();  // handles the request
  second.advance();  // grants it
  while (first->advance()) {
  }
  ASSERT_TRUE(first->done(sent));
  first.reset();
  while (second.advance()) {
  }
  EXPECT_TRUE(second.done(received));
  EXPECT_EQ(out, in);
}

TEST(Messages, ReadsMessagesOfAPeerThatEndsBeforeTheirReceives) {
  constexpr std::size_t kMessages = 20;
  constexpr std::size_t kBytes = 1000;
  auto first = std::make_unique<MessagesEnd>(0, 2, std::size_t{1} << 20);
  MessagesEnd second(1, 2, std::size_t{1} << 20);
  auto [near, far] = MemoryLink::make();
  first->attach(1, 0, 1, std::move(near));
  second.attach(0, 0, 1, std::move(far));
  std::vector<Bytes> sent;
  for (unsigned i = 0; i < kMessages; ++i) sent.push_back(pattern(kBytes, i));
  for (const Bytes& each : sent) first->send(each, 1, 5);
  while (first->advance()) {
  }
  second.messages().drain(GroupRank(0));
  EXPECT_FALSE(second.messages().idle());
  first.reset();
  while (second.advance()) {
  }
  EXPECT_TRUE(second.messages().idle());
  Bytes got(kBytes);
  for (const Bytes& each : sent) {
    const auto received = second.receive(got, 0, 5);
    EXPECT_TRUE(second.done(received));
    EXPECT_EQ(got, each);
  }
  second.receive(got, 0, 5);
  EXPECT_THROW(second.advance(), PeerError);
}

TEST(Messages, ReadsMessagesOfAPeerUntilItsLastLinkEnds) {
  MessagesEnd victim(0, 2, std::size_t{1} << 20);
  testing::HostilePeer peer(victim, 2);
  const Bytes sent = pattern(100, 1);
  Frame frame;
  frame.kind = FrameKind::eager;
  frame.call.collective = Collective::send;
  frame.call.dtype = DType::u8;
  frame.call.count = sent.size();
  frame.call.sequence = 1;
  frame.payload_bytes = static_cast<std::uint32_t>(sent.size());
  victim.messages().drain(GroupRank(1));
  peer.end_link(1);
  while (victim.advance()) {
  }
  EXPECT_FALSE(victim.messages().idle());
  peer.send(frame, sent);
  peer.end_link(0);
  while (victim.advance()) {
  }
  EXPECT_TRUE(victim.messages().idle());
  Bytes got(sent.size());
  const auto received = victim.receive(got, 1, 0);
  EXPECT_TRUE(victim.done(received));
  EXPECT_EQ(got, sent);
}

}  // namespace
}  // namespace mccl::engine
