// Runs the conformance suite on an RDMA link over simulated devices, and tests failures that only
// this link can have.
#include "transport/rdma/link.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "support/failure.h"
#include "transport/link_conformance.h"
#include "transport/rdma/linked_ends.h"

namespace mccl::transport::rdma {
namespace {

using mccl::testing::Fabric;
using mccl::testing::failure_of;
using mccl::testing::Fate;
using mccl::testing::rdma_links;
using mccl::testing::RdmaEnds;
using mccl::testing::VerbsDouble;

LinkFactory on_double(Service service) {
  const auto verbs = std::make_shared<VerbsDouble>();
  verbs->add("here0", 1);
  verbs->add("there0", 2);
  return rdma_links(std::string(name_of(service)), [verbs, service] {
    return RdmaEnds::connect(verbs, "here0", "there0", service);
  });
}

INSTANTIATE_TEST_SUITE_P(RdmaDouble, LinkConformance,
                         ::testing::Values(on_double(Service::uc), on_double(Service::rc)),
                         [](const auto& info) { return info.param.name; });

class RdmaLinkTest : public LinkedEnds {
 protected:
  void send(std::size_t bytes) { ASSERT_EQ(a_->write(Bytes(bytes, std::byte{7})), bytes); }
  void look(Clock::time_point now) {
    for (const auto& station : ends_.stations) station->look(now);
  }

  /// Writes until neither end grants more credit, even when probed.
  void write_all_that_credit_allows(Clock::time_point& now) {
    for (int since = 0; since < 20; ++since) {
      if (a_->write(Bytes(30000)) != 0) since = 0;
      look(now += std::chrono::milliseconds(100));
    }
  }

  /// Makes both ends send as fast as they can for a while, read everything, and then wait. Returns
  /// the error that one end got, or "" if both would wait forever.
  std::string ending_of_a_talk() {
    constexpr int kTalk = 20, kRounds = 600;
    Clock::time_point now = Clock::now();
    Bytes got(std::size_t{64} << 10);
    try {
      for (int round = 0; round < kRounds; ++round) {
        for (RdmaLink* const end : {a_.get(), b_.get()}) {
          for (int i = 0; round < kTalk && i < 20 && end->write(Bytes(100)) != 0; ++i) continue;
          while (round % 2 == 1 && end->read(got) != 0) continue;
        }
        look(now += std::chrono::milliseconds(100));
      }
      for (RdmaLink* const end : {a_.get(), b_.get()}) end->read(got);
    } catch (const LinkClosed& error) {
      return error.what();
    }
    return {};
  }
};

using ::testing::HasSubstr;

TEST_F(RdmaLinkTest, AMessageThatIsLostIsAnErrorThatNamesThePeerAndNeverAWrongResult) {
  connect(Service::uc);
  send(100);
  fabric_.judge = [](Fabric::Message&) { return Fate{Fate::Kind::lost}; };
  send(100);
  fabric_.judge = {};
  send(100);
  Bytes got(300);
  EXPECT_EQ(b_->read(got), 100u);
  const std::string what = failure_of<LinkClosed>([&] { b_->read(got); });
  EXPECT_THAT(what, HasSubstr("rank 0"));
  EXPECT_THAT(what, HasSubstr("lost in transit"));
}

TEST_F(RdmaLinkTest, AMessageThatIsOvertakenIsAnErrorAndNeverAWrongResult) {
  for (const Service service : {Service::uc, Service::rc}) {
    connect(service);
    send(100);
    fabric_.judge = [](Fabric::Message&) { return Fate{Fate::Kind::held}; };
    send(100);
    fabric_.judge = {};
    send(100);
    Bytes got(300);
    EXPECT_EQ(b_->read(got), 100u);
    EXPECT_THAT(failure_of<LinkClosed>([&] { b_->read(got); }),
                ::testing::AllOf(HasSubstr("rank 0"), HasSubstr("arrived instead of")));
    fabric_.release();
    EXPECT_THROW(b_->read(got), LinkClosed) << "a late message must not revive the link";
  }
}

/// Linux's software RoCE delivers a message twice if it retransmits one that was only late. The
/// loop is longer than the number of slots, so a slot that is not posted again is noticed.
TEST_F(RdmaLinkTest, DropsARepeatedMessageAndRepostsItsSlot) {
  for (const Service service : {Service::uc, Service::rc}) {
    connect(service);
    fabric_.judge = [](Fabric::Message&) { return Fate{Fate::Kind::twice}; };
    for (int i = 0; i < 3 * static_cast<int>(kReceiveSlots); ++i) {
      const Bytes sent(100, static_cast<std::byte>(i));
      ASSERT_EQ(a_->write(sent), sent.size());
      Bytes got(2 * sent.size());
      ASSERT_EQ(b_->read(got), sent.size()) << "a repeated message must not be returned again";
      got.resize(sent.size());
      ASSERT_EQ(got, sent);
    }
    EXPECT_THAT(b_->description(), HasSubstr("messages delivered more than once"));
    fabric_.judge = {};
    EXPECT_EQ(second_end().posted(), kReceiveSlots);
  }
}

/// A faulty device may deliver more than the last message again.
TEST_F(RdmaLinkTest, DropsRepeatedMessagesInOrder) {
  connect(Service::rc);
  std::vector<Bytes> copies;
  fabric_.judge = [&copies](Fabric::Message& message) {
    copies.push_back(message.bytes);
    return Fate();
  };
  for (int i = 0; i < 3; ++i) send(100);
  fabric_.judge = {};
  for (const Bytes& copy : copies) second_end().take(copy);
  send(50);
  Bytes got(500);
  EXPECT_EQ(b_->read(got), 350u);
}

/// A repeated message is dropped before its fields are used. The next message is checked as usual.
TEST_F(RdmaLinkTest, AGapAfterARepeatIsAnError) {
  connect(Service::rc);
  fabric_.judge = [](Fabric::Message&) { return Fate{Fate::Kind::twice}; };
  send(100);
  fabric_.judge = [](Fabric::Message&) { return Fate{Fate::Kind::held}; };
  send(100);
  fabric_.judge = {};
  send(100);
  Bytes got(300);
  EXPECT_EQ(b_->read(got), 100u);
  EXPECT_THAT(failure_of<LinkClosed>([&] { b_->read(got); }),
              ::testing::AllOf(HasSubstr("rank 0"), HasSubstr("lost in transit")));
}

/// A peer that returns more credit than it has could make the sender overrun the posted receives.
/// One that takes credit back could stop the sender forever.
TEST_F(RdmaLinkTest, FalseCreditsAreAnErrorThatNamesThePeer) {
  for (const std::uint32_t lie : {1'000U, 0xffff'ffffU}) {
    connect(Service::uc);
    fabric_.judge = [lie](Fabric::Message& message) {
      MessageHeader header;
      std::memcpy(&header, message.bytes.data(), kHeaderBytes);
      header.returned += lie;
      encode(header, message.bytes);
      return Fate();
    };
    send(100);
    Bytes got(100);
    EXPECT_THAT(failure_of<CorruptionError>([&] { b_->read(got); }),
                ::testing::AllOf(HasSubstr("rank 0"), HasSubstr("it acknowledges message")));
    fabric_.judge = {};
  }
}

/// Only a probe can reveal the loss, because no message follows.
TEST_F(RdmaLinkTest, TheLossOfTheLastMessageIsDetected) {
  connect(Service::uc);
  fabric_.judge = [](Fabric::Message&) { return Fate{Fate::Kind::lost}; };
  send(100);
  fabric_.judge = {};
  Bytes got(300);
  const Clock::time_point later = Clock::now() + std::chrono::hours(1);
  for (int i = 1; i < 4; ++i) ends_.stations[0]->look(later + i * std::chrono::seconds(1));
  EXPECT_THAT(failure_of<LinkClosed>([&] { b_->read(got); }), HasSubstr("lost in transit"));
}

/// One probe is enough even if the receiver reads nothing, since its arrival is confirmed.
TEST_F(RdmaLinkTest, ALinkThatIsIdleIsProbedOnceAndThenLeftAlone) {
  connect(Service::uc);
  send(100);
  unsigned messages = 0;
  fabric_.judge = [&](Fabric::Message&) {
    ++messages;
    return Fate();
  };
  Clock::time_point now = Clock::now() + std::chrono::hours(1);
  for (int i = 0; i < 100; ++i) look(now += std::chrono::seconds(1));
  EXPECT_EQ(messages, 2u) << "a probe and its answer";
  EXPECT_EQ(ends_.stations[0]->next_look(), Clock::time_point::max());
  EXPECT_EQ(ends_.stations[1]->next_look(), Clock::time_point::max());
  Bytes got(100);
  EXPECT_EQ(b_->read(got), 100u);
}

/// Any number of messages may be lost at both ends at any time. Either a later message reveals the
/// loss, or the lack of any message does.
TEST_F(RdmaLinkTest, ABurstOfLossesIsDetected) {
  for (int first = 0; first < 40; ++first) {
    for (const int lost : {2, 3, 4, 5, 6}) {
      connect(Service::uc);
      int number = 0;
      fabric_.judge = [&](Fabric::Message&) {
        const bool gone = number >= first && number < first + lost;
        ++number;
        return Fate{gone ? Fate::Kind::lost : Fate::Kind::arrives};
      };
      const std::string what = ending_of_a_talk();
      fabric_.judge = {};
      EXPECT_THAT(what,
                  ::testing::AnyOf(HasSubstr("lost in transit"), HasSubstr("it does not answer")))
          << lost << " from " << first;
    }
  }
}

/// A probe is answered before the receiver takes its data. The message that returns the credit is
/// then lost, and the sender has no credit left.
TEST_F(RdmaLinkTest, DetectsLostCredit) {
  connect(Service::uc);
  Clock::time_point now = Clock::now();
  const auto wait = [&](int tenths) {
    for (int i = 0; i < tenths; ++i) look(now += std::chrono::milliseconds(100));
  };
  const Bytes block(30000);
  write_all_that_credit_allows(now);
  fabric_.judge = [](Fabric::Message&) { return Fate{Fate::Kind::lost}; };
  Bytes got(30000);
  while (b_->read(got) != 0) continue;
  int sent = 0;
  fabric_.judge = [&sent](Fabric::Message&) {
    ++sent;
    return Fate();
  };
  const std::string what = failure_of<LinkClosed>([&] {
    for (int i = 0; i < 100 && a_->write(block) == 0; ++i) wait(1);
  });
  EXPECT_THAT(what, HasSubstr("lost in transit"));
  fabric_.judge = {};
}

/// A receiver that computes for a long time is probed at growing intervals.
TEST_F(RdmaLinkTest, ProbesAnUnresponsivePeerLessOften) {
  connect(Service::uc);
  Clock::time_point now = Clock::now();
  write_all_that_credit_allows(now);
  int sent = 0;
  fabric_.judge = [&sent](Fabric::Message&) {
    ++sent;
    return Fate();
  };
  for (int i = 0; i < 600; ++i) look(now += std::chrono::milliseconds(100));
  EXPECT_GT(sent, 20);
  EXPECT_LT(sent, 100) << "probes and answers of one minute";
  fabric_.judge = {};
  Bytes got(30000);
  while (b_->read(got) != 0) continue;
  look(now += std::chrono::seconds(3));
  EXPECT_NE(a_->write(got), 0u) << "the link must still work";
}

/// The last message of the greeting and the data after it are lost. If that message were sent
/// again, the receiver would skip the lost data.
TEST(RdmaGreeting, ALostFinalGreetingFollowedByDataIsNotRepeated) {
  const auto verbs = std::make_shared<VerbsDouble>();
  verbs->add("here0", 1);
  verbs->add("there0", 2);
  bool ready_is_lost = false;
  verbs->fabric->judge = [&](Fabric::Message& message) {
    const auto kind = static_cast<MessageKind>(message.bytes[offsetof(MessageHeader, kind)]);
    const bool lost = kind == MessageKind::ready || kind == MessageKind::data;
    const bool gone = lost && (!ready_is_lost || kind == MessageKind::data);
    ready_is_lost |= kind == MessageKind::ready;
    return gone ? Fate{Fate::Kind::lost} : Fate();
  };
  auto ends = RdmaEnds::connect(verbs, "here0", "there0", Service::uc);
  Pair& here = *ends.pairs[0];
  Pair& there = *ends.pairs[1];
  while (!here.is_open()) {
    for (const auto& pair : ends.pairs) pair->poll();
  }
  ASSERT_FALSE(here.free_slot().empty());
  here.send(1);
  Clock::time_point now = Clock::now();
  for (int i = 0; i < 300; ++i) {
    for (const auto& station : ends.stations) station->look(now += std::chrono::milliseconds(100));
  }
  EXPECT_FALSE(there.is_open());
  EXPECT_THAT(here.ended(), HasSubstr("it does not answer"));
  verbs->fabric->judge = {};
}

/// The path fails permanently while both processes are alive.
TEST_F(RdmaLinkTest, APathThatCarriesNothingAnyMoreIsAnErrorThatNamesThePeer) {
  connect(Service::uc);
  send(100);
  fabric_.judge = [](Fabric::Message&) { return Fate{Fate::Kind::lost}; };
  send(100);
  Clock::time_point now = Clock::now();
  for (int i = 0; i < 20; ++i) look(now += std::chrono::seconds(1));
  const auto broken = ends_.stations[0]->take_broken();
  ASSERT_EQ(broken.size(), 1u) << "a failure must be reported although neither end uses the link";
  EXPECT_EQ(broken[0].first.peer, WorldRank(1));
  EXPECT_THAT(failure_of<LinkClosed>([&] { a_->write(Bytes(10)); }),
              ::testing::AllOf(HasSubstr("rank 1"), HasSubstr("it does not answer")));
  EXPECT_TRUE(ends_.stations[0]->take_broken().empty()) << "a broken link was reported twice";
  fabric_.judge = {};
}

/// The sender makes no further call on the link, and the receiver waits.
TEST_F(RdmaLinkTest, DetectsAFailureAfterTheLastCall) {
  for (const Service service : {Service::uc, Service::rc}) {
    connect(service);
    fabric_.judge = [](Fabric::Message&) { return Fate{Fate::Kind::sender_fails, 12}; };
    send(10);
    fabric_.judge = {};
    look(Clock::now() + std::chrono::hours(1));
    EXPECT_EQ(ends_.stations[0]->take_broken().size(), 1u);
    EXPECT_TRUE(ends_.stations[1]->take_broken().empty());
  }
}

TEST_F(RdmaLinkTest, ReportsEveryFailedCompletion) {
  for (const Service service : {Service::uc, Service::rc}) {
    for (int status = 1; status < 24; ++status) {
      connect(service);
      fabric_.judge = [&](Fabric::Message&) { return Fate{Fate::Kind::sender_fails, status}; };
      send(10);
      const std::string what = failure_of<LinkClosed>([&] { a_->write(Bytes(10)); });
      EXPECT_THAT(what, HasSubstr(fmt::format("(completion status {})", status)));
      EXPECT_THAT(what, HasSubstr("rank 1"));
      fabric_.judge = {};
    }
  }
}

TEST_F(RdmaLinkTest, DeliversBytesThatArrivedBeforeAFailure) {
  connect(Service::rc);
  send(10);
  fabric_.judge = [](Fabric::Message&) { return Fate{Fate::Kind::receiver_fails, 4}; };
  send(10);
  Bytes got(100);
  EXPECT_EQ(b_->read(got), 10u);
  EXPECT_THAT(failure_of<LinkClosed>([&] { b_->read(got); }),
              HasSubstr("receiving a message failed"));
}

TEST_F(RdmaLinkTest, AppliesBackPressure) {
  connect(Service::rc);
  fabric_.judge = [](Fabric::Message&) { return Fate{Fate::Kind::forgotten}; };
  const Bytes block(1 << 20);
  std::size_t written = 0;
  for (std::size_t n = 1; n != 0; written += n) n = a_->write(block);
  EXPECT_LE(written, kSendSlots * std::size_t{kSlotBytes});
  EXPECT_EQ(a_->unsent(), written);
  a_->lose_peer(Loss::silence);
  EXPECT_THAT(failure_of<LinkClosed>([&] { a_->write(block); }),
              HasSubstr("its process has ended"));
}

TEST_F(RdmaLinkTest, ReportsARefusedPost) {
  connect(Service::rc);
  fabric_.gate = [](const std::string& call) { return call == "ibv_post_send" ? ENOMEM : 0; };
  EXPECT_THAT(failure_of<LinkClosed>([&] { a_->write(Bytes(10)); }), HasSubstr("rejects a send"));
  fabric_.gate = [](const std::string& call) { return call == "ibv_post_recv" ? EINVAL : 0; };
  EXPECT_THAT(failure_of([&] { connect(Service::rc); }), HasSubstr("rejects a receive"));
}

TEST_F(RdmaLinkTest, DetectsAPeerWithoutTheToken) {
  connect(Service::rc);
  const Bytes garbage(200, std::byte{0x5a});
  second_end().take(garbage);
  Bytes got(10);
  EXPECT_THAT(failure_of<CorruptionError>([&] { b_->read(got); }),
              ::testing::AllOf(HasSubstr("rank 0"), HasSubstr("token")));
}

/// Alters each field of the header in turn, which in reality only the peer could do.
TEST_F(RdmaLinkTest, GarbageInASlotIsAnErrorThatNamesThePeer) {
  const auto change = [](std::size_t at, std::size_t bytes) {
    return [at, bytes](Fabric::Message& message) {
      for (std::size_t i = at; i < at + bytes; ++i) message.bytes[i] ^= std::byte{0x7f};
      return Fate();
    };
  };
  for (const std::size_t at : {0, 12, 16, 20, 22}) {
    connect(Service::rc);
    fabric_.judge = change(at, 2);
    send(100);
    Bytes got(100);
    EXPECT_THAT(failure_of<CorruptionError>([&] { b_->read(got); }), HasSubstr("rank 0")) << at;
    fabric_.judge = {};
  }
  connect(Service::rc);
  fabric_.judge = [](Fabric::Message& message) {
    message.bytes.resize(10);
    return Fate();
  };
  send(100);
  Bytes got(100);
  EXPECT_THAT(failure_of<CorruptionError>([&] { b_->read(got); }), HasSubstr("too short"));
}

TEST_F(RdmaLinkTest, DoesNotUseADeviceThatIsGone) {
  connect(Service::rc);
  send(100);
  fabric_.report("there0", {DeviceEvent::Kind::device_gone, 0, "it is gone"});
  fabric_.after_death = 0;
  ends_.stations[1]->look(Clock::now());
  Bytes got(100);
  EXPECT_THAT(failure_of<LinkClosed>([&] { b_->read(got); }),
              HasSubstr("device there0: it is gone"));
  EXPECT_THAT(failure_of<LinkClosed>([&] { b_->write(got); }), HasSubstr("device there0"));
  EXPECT_THROW(ends_.stations[1]->make_pair(Service::rc, {WorldRank(0), {}}), Error);
  b_.reset();
  EXPECT_EQ(fabric_.after_death, 0u);
}

TEST_F(RdmaLinkTest, APortThatGoesDownEndsItsLinksOnly) {
  connect(Service::rc);
  fabric_.report("here0", {DeviceEvent::Kind::port_down, 2, "port 2 went down"});
  ends_.stations[0]->look(Clock::now());
  send(10);
  fabric_.report("here0", {DeviceEvent::Kind::port_down, 1, "port 1 went down"});
  ends_.stations[0]->look(Clock::now());
  EXPECT_THAT(failure_of<LinkClosed>([&] { a_->write(Bytes(10)); }), HasSubstr("port 1 went down"));
}

/// A queue pair may fail without a completion that reports it.
TEST_F(RdmaLinkTest, AQueuePairThatFailsEndsItsLinkOnly) {
  connect(Service::rc);
  const std::uint32_t here = fabric_.pairs.begin()->first;
  const DeviceEvent event{DeviceEvent::Kind::pair_failed, 0, "local work queue catastrophic error",
                          here};
  fabric_.report("there0", event);
  for (const auto& station : ends_.stations) station->look(Clock::now());
  send(10);
  Bytes got(10);
  EXPECT_EQ(b_->read(got), 10u) << "an error of the other device must not end this pair";
  fabric_.report("here0", event);
  ends_.stations[0]->look(Clock::now());
  EXPECT_THAT(failure_of<LinkClosed>([&] { a_->read(got); }),
              HasSubstr("device here0: local work queue catastrophic error"));
  connect(Service::rc);
  send(10);
  EXPECT_EQ(b_->read(got), 10u) << "other pairs of the device must still work";
}

/// Refuses each call that makes an object. The error must name the call, and no object may stay
/// open.
TEST_F(RdmaLinkTest, AnErrorOfTheDeviceIsReportedAndLeavesNothingOpen) {
  for (const std::string call : {"ibv_open_device", "ibv_alloc_pd", "ibv_reg_mr", "ibv_create_cq",
                                 "ibv_create_qp", "ibv_modify_qp"}) {
    fabric_.gate = [&](const std::string& made) { return made == call ? ENOMEM : 0; };
    const std::string what = failure_of([&] { connect(Service::rc); });
    EXPECT_THAT(what, HasSubstr(call));
    if (call == "ibv_reg_mr") {
      EXPECT_THAT(what, HasSubstr("ulimit -l"));
    }
    EXPECT_TRUE(fabric_.all_closed()) << call;
  }
}

TEST_F(RdmaLinkTest, PollsOftenWithoutACompletionChannel) {
  fabric_.gate = [](const std::string& call) {
    return call == "ibv_create_comp_channel" ? ENOSYS : 0;
  };
  connect(Service::uc);
  EXPECT_TRUE(ends_.stations[1]->arm());
  EXPECT_LE(ends_.stations[1]->next_look(), Clock::now() + std::chrono::seconds(1));
  send(10);
  Bytes got(10);
  EXPECT_EQ(b_->read(got), 10u);
}

TEST_F(RdmaLinkTest, ManyLinksShareFewRegions) {
  connect(Service::uc);
  std::vector<PairAtStation> pairs;
  for (int i = 0; i < 300; ++i)
    pairs.push_back(ends_.stations[0]->make_pair(Service::uc, {WorldRank(1), {}}));
  EXPECT_LE(fabric_.most_regions, VerbsDevice::kMostRegions);
  EXPECT_EQ(ends_.stations[0]->device().slots().berths_in_use(), 301u);
  pairs.clear();
  EXPECT_EQ(ends_.stations[0]->device().slots().berths_in_use(), 1u);
}

}  // namespace
}  // namespace mccl::transport::rdma
