// Tests which rank makes a link, with which transport, and how both ends react if one of them
// cannot make the link.
#include "engine/links/link_maker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "mccl/error.h"
#include "support/loopback_transport.h"
#include "support/members.h"

namespace mccl::engine {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::LoopbackEnds;
using testing::LoopbackTransport;
using testing::MemoryLink;
using transport::Purpose;

/// One rank of two, with two transports.
class End {
 public:
  End(int rank, const std::vector<std::shared_ptr<LoopbackEnds>>& ends)
      : rank_(rank),
        group_(testing::membership(rank, 2)),
        channels_(
            group_, 4096, false,
            [this](Purpose purpose, GroupRank member) { maker->request(group_, purpose, member); },
            [this] { ++attached; }) {
    LinkMaker::Transports transports;
    for (const char* name : {"fast", "slow"}) {
      auto transport = std::make_unique<LoopbackTransport>(ends[this->transports.size()], name);
      this->transports.push_back(transport.get());
      transports.push_back(std::move(transport));
    }
    maker.emplace(
        WorldRank(rank), std::move(transports), std::chrono::seconds(10), peers,
        [this](std::uint64_t id) { return has_group && id == group_.id ? &channels_ : nullptr; },
        log_);
  }

  /// Handles the messages of the other end. Returns false if there were none.
  bool hear() {
    bool heard = false;
    peers.receive(
        [&](WorldRank peer, const ControlMessage& message) {
          heard = true;
          if (has_group) return maker->hear(peer, channels_, message);
          if (message.kind == ControlKind::link) maker->refuse(peer, message);
        },
        [&](WorldRank, const std::string& reason) { lost = reason; });
    return heard;
  }

  Channel& channel(Purpose purpose = Purpose::collective) {
    return channels_.at(purpose, GroupRank(1 - rank_));
  }
  Channels& channels() { return channels_; }
  const Membership& group() const { return group_; }
  bool connected() { return channel().connected(); }
  void need_link() { channels_.open(Purpose::collective, GroupRank(1 - rank_)); }

  std::vector<LoopbackTransport*> transports;
  Peers peers{2};
  std::optional<LinkMaker> maker;
  bool has_group = true;
  int attached = 0;
  std::string lost;

 private:
  const int rank_;
  const Membership group_;
  Channels channels_;
  const Log log_{rank_, LogLevel::error};
};

class LinkMaking : public ::testing::Test {
 protected:
  LinkMaking() {
    auto [first, second] = MemoryLink::make();
    low.peers.connect(WorldRank(1), std::move(first));
    high.peers.connect(WorldRank(0), std::move(second));
  }

  /// Runs both ends until neither receives a message.
  void settle() {
    for (bool heard = true; heard;) {
      heard = high.hear();
      heard |= low.hear();
    }
  }

  void expect_a_link() {
    ASSERT_TRUE(low.connected());
    ASSERT_TRUE(high.connected());
    EXPECT_EQ(low.attached, 1);
    EXPECT_EQ(high.attached, 1);
    const std::byte sent[] = {std::byte{7}};
    EXPECT_EQ(low.channel().lanes[0]->link().write(sent), 1u);
    EXPECT_EQ(high.channel().lanes[0]->link().peek(1)[0], std::byte{7});
    EXPECT_THAT(low.lost + high.lost, IsEmpty());
  }

  void deliver_to_high(const ControlMessage& message) {
    low.peers.send(WorldRank(1), message);
    high.hear();
  }

  std::vector<std::shared_ptr<LoopbackEnds>> ends{std::make_shared<LoopbackEnds>(),
                                                  std::make_shared<LoopbackEnds>()};
  End low{0, ends};
  End high{1, ends};
};

TEST_F(LinkMaking, TheHigherRankAlwaysMakesTheLink) {
  low.need_link();
  settle();
  expect_a_link();
}

TEST_F(LinkMaking, UsesTheFirstTransportThatReachesThePeer) {
  EXPECT_EQ(low.maker->describe(WorldRank(1)), "the memory of this process");
}

TEST_F(LinkMaking, BothMayAskAtOnce) {
  low.need_link();
  high.need_link();
  settle();
  expect_a_link();
}

TEST_F(LinkMaking, FallsBackIfTheMakerCannotUseTheFirstTransport) {
  high.transports[0]->broken = true;
  low.need_link();
  settle();
  expect_a_link();
  EXPECT_EQ(ends[0]->size(), 0u);
}

TEST_F(LinkMaking, FallsBackIfTheOtherEndCannotUseTheFirstTransport) {
  low.transports[0]->broken = true;
  high.need_link();
  settle();
  expect_a_link();
}

TEST_F(LinkMaking, BothEndsLearnWhyNoTransportWorks) {
  for (LoopbackTransport* transport : high.transports) transport->broken = true;
  low.need_link();
  settle();
  EXPECT_THAT(low.channel().lost, HasSubstr("it is broken here"));
  EXPECT_THAT(high.channel().lost, HasSubstr("it is broken here"));
}

TEST_F(LinkMaking, BothEndsLearnThatTheOtherEndHasNoTransport) {
  for (LoopbackTransport* transport : low.transports) transport->broken = true;
  low.need_link();
  settle();
  EXPECT_FALSE(low.channel().lost.empty());
  EXPECT_FALSE(high.channel().lost.empty());
}

TEST_F(LinkMaking, AnOfferForAGroupThatIsGoneIsRefusedAndLeavesNothing) {
  low.need_link();
  high.hear();
  low.has_group = false;
  low.hear();
  EXPECT_EQ(ends[0]->size(), 0u) << "an offered end was not destroyed";
  EXPECT_FALSE(high.connected());
}

TEST_F(LinkMaking, AnOfferForAGroupThatHasFailedIsRefused) {
  low.need_link();
  high.hear();
  low.channels().close();
  settle();
  EXPECT_EQ(ends[0]->size(), 0u);
  EXPECT_FALSE(low.connected());
}

TEST_F(LinkMaking, AForgottenLinkIsNotMadeAndTheOtherEndLearnsOfIt) {
  low.need_link();
  high.hear();
  high.maker->forget(high.group().id);
  high.has_group = false;
  settle();
  EXPECT_FALSE(high.connected());
  EXPECT_THAT(low.channel().lost, HasSubstr("destroyed this group"));
}

/// A peer that had no descriptors for a while declines a link that both ends have established
/// meanwhile.
TEST_F(LinkMaking, ADeclineAfterTheLinkIsMadeIsIgnored) {
  low.need_link();
  settle();
  ControlMessage message;
  message.kind = ControlKind::declined;
  message.key = {high.group().id, Purpose::collective, 0};
  message.transport = "fast";
  message.failure.reason = "no file descriptors are left";
  deliver_to_high(message);
  expect_a_link();
}

TEST_F(LinkMaking, RefusesAnOfferInPlaceOfAnAnswer) {
  low.need_link();
  high.hear();  // `high` offers a link
  ControlMessage offer;
  offer.kind = ControlKind::link;
  offer.key = {high.group().id, Purpose::collective, 0};
  offer.transport = "fast";
  offer.blob = *low.transports[0]->dial(WorldRank(1), offer.key, {}).blob;
  deliver_to_high(offer);
  EXPECT_THAT(high.lost, HasSubstr("are malformed"));
  EXPECT_FALSE(high.connected());
}

/// A message that no correct peer sends ends the connection, and the peer counts as lost.
class InvalidMessages : public LinkMaking, public ::testing::WithParamInterface<int> {
 protected:
  ControlMessage lie() const {
    ControlMessage message;
    message.kind = ControlKind::link;
    message.key = {high.group().id, Purpose::collective, 0};
    message.transport = "fast";
    switch (GetParam()) {
      case 0:  // no link was offered
        break;
      case 1:
        message.transport = "carrier";
        break;
      case 2:
        message.key.rail = 1;
        break;
      case 3:
        message.key.purpose = Purpose::control;
        break;
      default:
        message.kind = ControlKind::declined;
        break;
    }
    return message;
  }
};

TEST_P(InvalidMessages, EndTheConnectionToTheirSender) {
  deliver_to_high(lie());
  EXPECT_THAT(high.lost, HasSubstr("are malformed"));
}

INSTANTIATE_TEST_SUITE_P(OfLinks, InvalidMessages, ::testing::Range(0, 5));

TEST_F(LinkMaking, RefusesAnAnswerForAnotherTransport) {
  low.need_link();
  high.hear();  // `high` offers a link by the first transport
  ControlMessage answer;
  answer.kind = ControlKind::link;
  answer.key = {high.group().id, Purpose::collective, 0};
  answer.transport = "slow";
  deliver_to_high(answer);
  EXPECT_THAT(high.lost, HasSubstr("was not offered"));
}

}  // namespace
}  // namespace mccl::engine
