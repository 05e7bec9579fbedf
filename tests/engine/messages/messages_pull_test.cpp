// Messages that the receiver copies from the memory of the sender.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "engine/messages/messages.h"
#include "support/messages_end.h"

namespace mccl::engine {
namespace {

using testing::MemoryLink;
using testing::MessagesEnd;
using testing::MessagesPair;

constexpr std::size_t kPulled = 3 * kPassBytes + 5;

std::vector<std::byte> numbered(std::size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(n);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

class PulledMessages : public ::testing::Test {
 protected:
  PulledMessages() { pair_.near_links.front()->lend_memory(); }

  /// Expects that the message has arrived, and whether its bytes passed through the link.
  void expect_arrival(const MessagesEnd::Call& sends, const MessagesEnd::Call& receives,
                      bool through_link) {
    EXPECT_TRUE(pair_.first.done(sends));
    EXPECT_TRUE(pair_.second.done(receives));
    EXPECT_EQ(got_, sent_);
    EXPECT_EQ(receives->message.pieces != 0, through_link);
    EXPECT_GE(sends->traffic.bytes_sent, sent_.size());
    EXPECT_GE(receives->traffic.bytes_received, sent_.size());
  }

  MessagesPair pair_;
  std::vector<std::byte> sent_ = numbered(kPulled, 1);
  std::vector<std::byte> got_ = std::vector<std::byte>(kPulled);
};

TEST_F(PulledMessages, ArriveAtAPostedReceive) {
  const auto receives = pair_.second.receive(got_, 0, 1);
  const auto sends = pair_.first.send(sent_, 1, 1);
  pair_.settle();
  expect_arrival(sends, receives, false);
}

TEST_F(PulledMessages, WaitForTheirReceive) {
  const auto sends = pair_.first.send(sent_, 1, 1);
  std::vector<std::byte> other(8);
  pair_.second.receive(other, 0, 2);  // makes the receiver read
  pair_.settle();
  EXPECT_FALSE(pair_.first.done(sends)) << "a send ends only when the receiver has the bytes";
  const auto receives = pair_.second.receive(got_, -1, 1);
  pair_.settle();
  expect_arrival(sends, receives, false);
}

TEST_F(PulledMessages, ThatAreLateMayBeUnderWay) {
  const auto sends = pair_.first.send(sent_, 1, 1);
  const auto receives = pair_.second.receive(got_, 0, 1);
  pair_.first.advance();
  pair_.second.advance();
  ASSERT_GT(receives->message.pulled, 0u);
  EXPECT_NE(pair_.first.messages().why_late(*sends).find("has not copied the whole message"),
            std::string::npos);
}

TEST_F(PulledMessages, LetSmallMessagesOvertakeThem) {
  const auto receives = pair_.second.receive(got_, 0, 1);
  const std::vector<std::byte> little = numbered(8, 2);
  std::vector<std::byte> other(little.size());
  const auto small = pair_.second.receive(other, 0, 2);
  pair_.first.send(sent_, 1, 1);
  pair_.first.advance();
  pair_.second.advance();
  pair_.first.send(little, 1, 2);
  for (int pass = 0; pass < 2 && !pair_.second.done(small); ++pass) {
    pair_.first.advance();
    pair_.second.advance();
  }
  EXPECT_TRUE(pair_.second.done(small));
  EXPECT_FALSE(pair_.second.done(receives));
  pair_.settle();
  EXPECT_TRUE(pair_.second.done(receives));
}

TEST_F(PulledMessages, PassThroughTheLinkIfTheSystemRefuses) {
  pair_.far_links.front()->refuse_memory();
  const auto receives = pair_.second.receive(got_, 0, 1);
  const auto sends = pair_.first.send(sent_, 1, 1);
  pair_.settle();
  expect_arrival(sends, receives, true);
}

/// Bytes that are still missing after a part was pulled come through the link.
TEST_F(PulledMessages, PassThroughTheLinkIfTheSystemRefusesLater) {
  const auto receives = pair_.second.receive(got_, 0, 1);
  const auto sends = pair_.first.send(sent_, 1, 1);
  pair_.first.advance();
  pair_.second.advance();
  ASSERT_GT(receives->message.pulled, 0u);
  pair_.far_links.front()->refuse_memory();
  pair_.settle();
  expect_arrival(sends, receives, true);
}

TEST_F(PulledMessages, OfNoBytesWithoutCreditArrive) {
  std::vector<MessagesEnd::Call> sends;
  for (std::size_t i = 0; i <= kEagerCredit / kEagerOverhead; ++i)
    sends.push_back(pair_.first.send({}, 1, 1));
  std::vector<MessagesEnd::Call> receives;
  for (std::size_t i = 0; i < sends.size(); ++i) receives.push_back(pair_.second.receive({}, 0, 1));
  pair_.settle();
  EXPECT_TRUE(pair_.first.done(sends.back()));
  EXPECT_TRUE(pair_.second.done(receives.back()));
}

/// The sender's program may change the bytes after its send has ended with an error.
TEST_F(PulledMessages, AreNotPulledAfterTheirSendHasEnded) {
  pair_.first.send(sent_, 1, 1);
  pair_.first.advance();
  const auto ended = pair_.first.messages().give_up(GroupRank(1), false);
  ASSERT_TRUE(ended);
  EXPECT_FALSE(ended->empty());
  const auto receives = pair_.second.receive(got_, 0, 1);
  EXPECT_THROW(pair_.settle(), MemberGone);
  EXPECT_FALSE(pair_.second.done(receives));
}

/// The receiver leaves after its receive. The sender notices that first when it writes another
/// message.
TEST_F(PulledMessages, SucceedIfTheirReceiverThenLeaves) {
  const auto receives = pair_.second.receive(got_, 0, 1);
  const auto sends = pair_.first.send(sent_, 1, 1);
  pair_.first.advance();
  for (int pass = 0; pass < 10; ++pass) pair_.second.advance();
  ASSERT_TRUE(pair_.second.done(receives));
  pair_.second.messages().give_up(GroupRank(0), true);  // drops the links
  const auto late = pair_.first.send(sent_, 1, 1);
  EXPECT_THROW(pair_.first.advance(), MemberGone);
  expect_arrival(sends, receives, false);
  const auto ended = pair_.first.messages().give_up(GroupRank(1), true);
  ASSERT_TRUE(ended);
  ASSERT_FALSE(ended->empty());
  EXPECT_EQ(&ended->front(), late.get());
  EXPECT_FALSE(pair_.first.advance());
}

TEST_F(PulledMessages, EndWithTheirSender) {
  const auto receives = pair_.second.receive(got_, 0, 1);
  pair_.first.send(sent_, 1, 1);
  pair_.first.advance();
  pair_.second.advance();
  ASSERT_GT(receives->message.pulled, 0u);
  pair_.first.messages().give_up(GroupRank(1), true);  // drops the links
  EXPECT_THROW(pair_.second.advance(), MemberGone);
  const auto ended = pair_.second.messages().give_up(GroupRank(0), true);
  ASSERT_TRUE(ended);
  EXPECT_EQ(&ended->front(), receives.get());
}

TEST(PulledMessage, IsNotUsedWhereMessagesHaveChecksums) {
  MessagesPair pair(MemoryLink::kUsualCapacity, 1, std::size_t{4} << 20, true);
  pair.near_links.front()->lend_memory();
  const std::vector<std::byte> sent = numbered(kPulled, 3);
  std::vector<std::byte> got(kPulled);
  const auto receives = pair.second.receive(got, 0, 1);
  pair.first.send(sent, 1, 1);
  pair.settle();
  EXPECT_TRUE(pair.second.done(receives));
  EXPECT_NE(receives->message.pieces, 0u);
  EXPECT_EQ(got, sent);
}

}  // namespace
}  // namespace mccl::engine
