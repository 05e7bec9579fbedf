// Tests how two ranks make an RDMA link, with simulated devices: the messages that they exchange,
// what each may refuse, and messages that no correct peer sends.
#include "transport/rdma/transport.h"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "support/failure.h"
#include "support/folder.h"
#include "support/verbs_double.h"
#include "transport/link_conformance.h"

namespace mccl::transport::rdma {
namespace {

using mccl::testing::DoubleDevice;
using mccl::testing::Fabric;
using mccl::testing::failure_of;
using mccl::testing::Fate;
using mccl::testing::VerbsDouble;
using ::testing::HasSubstr;

constexpr LinkKey kKey{.group = 5, .purpose = Purpose::collective, .rail = 0};
const Clock::time_point kNever = Clock::time_point::max();

Gid gid(GidType type, std::initializer_list<int> head, int last, int index = 0) {
  Gid made{.index = index, .type = type, .bytes = {}};
  std::size_t at = 0;
  for (const int byte : head) made.bytes[at++] = static_cast<std::uint8_t>(byte);
  made.bytes[15] = static_cast<std::uint8_t>(last);
  return made;
}
Gid ipv4(GidType type, int third, int last, int index = 0) {
  Gid made = gid(type, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 10, 9}, last, index);
  made.bytes[14] = static_cast<std::uint8_t>(third);
  return made;
}
Gid link_local(GidType type, int last, int index = 0) {
  return gid(type, {0xfe, 0x80}, last, index);
}

/// Two ranks, each on its own machine.
class RdmaTransportTest : public ::testing::Test {
 protected:
  RdmaTransportTest() {
    config_.transport = "rdma";
    devices_[0]->add("here0", 1);
    devices_[1]->add("there0", 2);
  }

  /// Makes the transports; call it when the devices are set up.
  void meet() {
    ends_ = {};
    std::vector<Survey> surveys;
    std::vector<Card> cards;
    for (int rank = 0; rank < 2; ++rank) {
      surveys.push_back(
          survey(config_, WorldRank(rank), 2, devices_[static_cast<std::size_t>(rank)], ""));
      cards.push_back(parse_card(WorldRank(0), serialise(surveys.back().card)));
    }
    for (int rank = 0; rank < 2; ++rank) {
      ends_[static_cast<std::size_t>(rank)] = std::make_unique<RdmaTransport>(
          WorldRank(rank), std::move(surveys[static_cast<std::size_t>(rank)]), cards,
          config_.rdma_gid);
    }
  }
  RdmaTransport& low() { return *ends_[0]; }
  RdmaTransport& high() { return *ends_[1]; }

  /// Exchanges the messages that make a link, like the engine; rank 1 dials.
  void exchange_offers(const LinkKey& key = kKey) {
    const Making offer = high().dial(WorldRank(0), key, kNever);
    const Making answer = low().hear(WorldRank(1), key, *offer.blob);
    EXPECT_FALSE(answer.link);
    const Making last = high().hear(WorldRank(0), key, *answer.blob);
    EXPECT_FALSE(last.link);
    EXPECT_FALSE(last.blob);
  }
  /// Drives both ends until each has reported its result.
  std::vector<LinkEvent> events() {
    std::vector<LinkEvent> all;
    const Clock::time_point limit = Clock::now() + std::chrono::seconds(20);
    while (all.size() < 2 && Clock::now() < limit) {
      for (const auto& end : ends_) end->progress(all);
    }
    return all;
  }

  const mccl::testing::Folder folder_;
  Config config_;
  const std::shared_ptr<Fabric> fabric_ = std::make_shared<Fabric>();
  const std::array<std::shared_ptr<VerbsDouble>, 2> devices_ = {
      std::make_shared<VerbsDouble>(fabric_), std::make_shared<VerbsDouble>(fabric_)};
  std::array<std::unique_ptr<RdmaTransport>, 2> ends_;
};

TEST_F(RdmaTransportTest, TwoRanksMakeALink) {
  meet();
  EXPECT_TRUE(low().reaches(WorldRank(1)));
  EXPECT_THAT(low().describe(WorldRank(1)), HasSubstr("here0"));
  exchange_offers();
  const std::vector<LinkEvent> made = events();
  ASSERT_EQ(made.size(), 2u);
  for (const LinkEvent& event : made) ASSERT_TRUE(event.link) << event.reason;
  EXPECT_EQ(made[0].link->write(Bytes(100, std::byte{1})), 100u);
  Bytes got(100);
  EXPECT_EQ(made[1].link->read(got), 100u);
  EXPECT_THAT(made[0].link->description(), HasSubstr("RoCE v2 10.9.0."));
}

TEST_F(RdmaTransportTest, NothingStaysOpen) {
  meet();
  exchange_offers();
  events();
  exchange_offers({.group = 6, .purpose = Purpose::point_to_point, .rail = 0});
  high().cancel(WorldRank(0), {.group = 6, .purpose = Purpose::point_to_point, .rail = 0});
  ends_ = {};
  EXPECT_TRUE(fabric_->all_closed());
}

TEST_F(RdmaTransportTest, ChoosesAddressesByKindAndCommonPrefix) {
  devices_[0]->known["here0"].gids = {
      link_local(GidType::roce_v1, 1, 0), link_local(GidType::roce_v2, 1, 1),
      ipv4(GidType::roce_v2, 7, 1, 5), ipv4(GidType::roce_v2, 4, 1, 9)};
  devices_[1]->known["there0"].gids = {ipv4(GidType::roce_v2, 4, 2, 2),
                                       ipv4(GidType::roce_v1, 7, 2, 3),
                                       link_local(GidType::roce_v2, 2, 4)};
  meet();
  exchange_offers();
  const std::vector<LinkEvent> made = events();
  for (const LinkEvent& event : made) {
    ASSERT_TRUE(event.link);
    EXPECT_THAT(event.link->description(), HasSubstr("10.9.4.1"));
    EXPECT_THAT(event.link->description(), HasSubstr("10.9.4.2"));
  }
}

TEST_F(RdmaTransportTest, ASettingChoosesAddresses) {
  devices_[0]->known["here0"].gids = {ipv4(GidType::roce_v2, 0, 1),
                                      link_local(GidType::roce_v2, 1)};
  devices_[1]->known["there0"].gids = {ipv4(GidType::roce_v2, 0, 2),
                                       link_local(GidType::roce_v2, 2)};
  config_.rdma_gid = "ipv6";
  meet();
  exchange_offers();
  for (const LinkEvent& event : events()) {
    ASSERT_TRUE(event.link);
    EXPECT_THAT(event.link->description(), HasSubstr("fe80::1"));
  }
}

TEST_F(RdmaTransportTest, ReportsTheAddressesOfBothEndsIfNoneMatch) {
  devices_[0]->known["here0"].gids = {ipv4(GidType::roce_v2, 0, 1)};
  devices_[1]->known["there0"].gids = {link_local(GidType::roce_v2, 2)};
  meet();
  EXPECT_FALSE(low().reaches(WorldRank(1)));
  EXPECT_FALSE(high().reaches(WorldRank(0)));
  EXPECT_THAT(low().missing(WorldRank(1)),
              ::testing::AllOf(HasSubstr("here0 RoCE v2 over IPv4"),
                               HasSubstr("there0 RoCE v2 over link-local IPv6")));
}

TEST_F(RdmaTransportTest, PortsOfTwoLinkLayersAreNotJoined) {
  devices_[1]->known["there0"].port.layer = LinkLayer::infiniband;
  meet();
  EXPECT_THAT(failure_of([&] { exchange_offers(); }),
              HasSubstr("device here0 uses Ethernet, but the port of rank 1 uses InfiniBand"));
  high().cancel(WorldRank(0), kKey);
  // An old driver does not report the layer.
  devices_[1]->known["there0"].port.layer = LinkLayer::unknown;
  meet();
  exchange_offers();
  for (const LinkEvent& event : events()) EXPECT_TRUE(event.link) << event.reason;
}

TEST_F(RdmaTransportTest, ReportsMissingDevicesOfAHost) {
  devices_[1]->known["there0"].port.active = false;
  devices_[1]->known["there0"].port.state = "PORT_DOWN";
  meet();
  EXPECT_THAT(low().missing(WorldRank(1)), HasSubstr("port 1 of there0 is PORT_DOWN"));
  devices_[1]->known["there0"].port.active = true;
  devices_[1]->known["there0"].gids = {};
  meet();
  EXPECT_THAT(low().missing(WorldRank(1)), HasSubstr("ip addr add"));
  devices_[1]->known.clear();
  meet();
  EXPECT_THAT(low().missing(WorldRank(1)), HasSubstr("no RDMA device"));
  fabric_->gate = [](const std::string& call) { return call == "ibv_alloc_pd" ? ENOMEM : 0; };
  meet();
  EXPECT_THAT(low().missing(WorldRank(1)), HasSubstr("ibv_alloc_pd of here0"));
}

TEST_F(RdmaTransportTest, ADeviceThatIsNamedMustBeThere) {
  config_.rdma_device = "here0,mlx5_7";
  meet();
  EXPECT_THAT(low().missing(WorldRank(1)),
              ::testing::AllOf(HasSubstr("mlx5_7"), HasSubstr("available: here0")));
}

TEST_F(RdmaTransportTest, SeveralDevicesGiveARailEach) {
  devices_[0]->add("here1", 11);
  devices_[1]->add("there1", 12);
  devices_[1]->add("there2", 13);
  meet();
  EXPECT_EQ(low().rails(WorldRank(1)), 2);
  EXPECT_EQ(high().rails(WorldRank(0)), 2);
  LinkKey second = kKey;
  second.rail = 1;
  exchange_offers(second);
  for (const LinkEvent& event : events()) {
    ASSERT_TRUE(event.link);
    EXPECT_THAT(event.link->description(), HasSubstr("10.9.0.11"));
  }
}

/// The table, in the format of MLX's jaccl, names the device that connects each pair.
TEST_F(RdmaTransportTest, UsesTheTableOfDevices) {
  devices_[0]->add("here1", 11);
  devices_[1]->add("there1", 12);
  config_.rdma_device = folder_.path() + "/devices.json";
  std::ofstream(config_.rdma_device)
      << R"([[null, ["here1", "here0"]], [["there0", "there1"], null]])";
  meet();
  ASSERT_EQ(low().rails(WorldRank(1)), 2) << low().missing(WorldRank(1));
  exchange_offers();
  for (const LinkEvent& event : events()) {
    ASSERT_TRUE(event.link);
    EXPECT_THAT(event.link->description(), HasSubstr("10.9.0.11"));
    EXPECT_THAT(event.link->description(), HasSubstr("10.9.0.2"));
  }
  std::ofstream(config_.rdma_device) << R"([[null, null], [null, null]])";
  meet();
  EXPECT_FALSE(low().reaches(WorldRank(1)));
}

/// Only the cable of the bad device is lost, at whichever end it is.
TEST_F(RdmaTransportTest, OneBadDeviceLosesOnlyItsOwnCable) {
  devices_[0]->add("here1", 11);
  devices_[1]->add("there1", 12);
  config_.rdma_device = folder_.path() + "/devices.json";
  config_.transport = "auto";
  for (const char* table : {R"([[null, ["gone0", "here1"]], [["there0", "there1"], null]])",
                            R"([[null, ["here0", "here1"]], [["gone0", "there1"], null]])"}) {
    std::ofstream(config_.rdma_device) << table;
    meet();
    ASSERT_EQ(low().rails(WorldRank(1)), 1) << low().missing(WorldRank(1));
    ASSERT_EQ(high().rails(WorldRank(0)), 1) << high().missing(WorldRank(0));
    exchange_offers();
    for (const LinkEvent& event : events()) {
      ASSERT_TRUE(event.link) << event.reason;
      EXPECT_THAT(event.link->description(), HasSubstr("10.9.0.11"));
      EXPECT_THAT(event.link->description(), HasSubstr("10.9.0.12"));
    }
  }
  std::ofstream(config_.rdma_device) << R"([[null, ["gone0"]], [["there0"], null]])";
  meet();
  EXPECT_THAT(high().missing(WorldRank(0)), HasSubstr("there is no device gone0"));
  std::ofstream(config_.rdma_device)
      << R"([[null, ["gone0", "here1"]], [["there0", "gone1"], null]])";
  meet();
  for (const std::string& missing : {low().missing(WorldRank(1)), high().missing(WorldRank(0))}) {
    EXPECT_THAT(missing, ::testing::AllOf(HasSubstr("gone0"), HasSubstr("gone1")));
  }
}

TEST_F(RdmaTransportTest, AQueuePairThatCannotBeConnectedIsAnErrorAtThatEnd) {
  meet();
  const Making offer = high().dial(WorldRank(0), kKey, kNever);
  fabric_->gate = [](const std::string& call) { return call == "ibv_modify_qp" ? ETIMEDOUT : 0; };
  EXPECT_THAT(failure_of([&] { low().hear(WorldRank(1), kKey, *offer.blob); }),
              ::testing::AllOf(HasSubstr("here0"), HasSubstr("errno 110")));
  high().cancel(WorldRank(0), kKey);
  fabric_->gate = {};
  exchange_offers();
  EXPECT_TRUE(events().front().link);
}

/// If no packets pass, the ends notice it before the link is used.
TEST_F(RdmaTransportTest, GivesUpASilentPath) {
  config_.rdma_service = "uc";
  meet();
  fabric_->judge = [](Fabric::Message&) { return Fate{Fate::Kind::lost}; };
  exchange_offers();
  const std::vector<LinkEvent> failed = events();
  ASSERT_EQ(failed.size(), 2u);
  for (const LinkEvent& event : failed) {
    EXPECT_FALSE(event.link);
    EXPECT_THAT(event.reason, HasSubstr("UDP port 4791"));
  }
}

TEST_F(RdmaTransportTest, RepeatsLostGreetings) {
  config_.rdma_service = "uc";
  meet();
  int messages = 0;
  fabric_->judge = [&](Fabric::Message&) {
    return Fate{messages++ % 2 == 0 && messages < 4 ? Fate::Kind::lost : Fate::Kind::arrives};
  };
  exchange_offers();
  const std::vector<LinkEvent> made = events();
  ASSERT_EQ(made.size(), 2u);
  for (const LinkEvent& event : made) EXPECT_TRUE(event.link) << event.reason;
}

/// Alters every byte of the message. The result must be an error or a link, made or not, but never
/// a crash.
TEST_F(RdmaTransportTest, RefusesMalformedOffers) {
  meet();
  const Blob good = *high().dial(WorldRank(0), kKey, kNever).blob;
  int refused = 0;
  for (std::size_t at = 0; at < good.size(); ++at) {
    for (const int flip : {0x01, 0x80, 0xff}) {
      Blob bad = good;
      bad[at] ^= static_cast<std::byte>(flip);
      try {
        low().hear(WorldRank(1), kKey, bad);
      } catch (const Error&) {
        ++refused;
      }
      low().cancel(WorldRank(1), kKey);
    }
  }
  EXPECT_GT(refused, 60);
  for (std::size_t bytes = 0; bytes < good.size(); ++bytes) {
    EXPECT_THROW(low().hear(WorldRank(1), kKey, std::span(good).first(bytes)), CorruptionError);
  }
  EXPECT_THROW(low().hear(WorldRank(1), kKey, Blob(kMostBlobBytes)), CorruptionError);
}

/// The message names a queue pair that already serves another link.
TEST_F(RdmaTransportTest, AForeignQueuePairNumberGivesNoLinkAndHarmsNone) {
  for (const char* service : {"rc", "uc"}) {
    config_.rdma_service = service;
    meet();
    exchange_offers();
    const std::vector<LinkEvent> whole = events();
    ASSERT_EQ(whole.size(), 2u);
    const std::uint32_t foreign = fabric_->pairs.rbegin()->first;

    const LinkKey other{.group = 6, .purpose = Purpose::collective, .rail = 0};
    Offer forged = decode_offer(WorldRank(1), *high().dial(WorldRank(0), other, kNever).blob);
    forged.queue_pair = foreign;
    const Making answer = low().hear(WorldRank(1), other, encode(forged));
    high().hear(WorldRank(0), other, *answer.blob);
    for (const LinkEvent& event : events()) {
      EXPECT_FALSE(event.link);
      EXPECT_NE(event.reason, "");
    }
    EXPECT_EQ(whole[0].link->write(Bytes(100, std::byte{1})), 100u);
    Bytes got(100);
    EXPECT_EQ(whole[1].link->read(got), 100u);
  }
}

TEST_F(RdmaTransportTest, AfterAFailedAttemptTheNextOneSucceeds) {
  for (const std::string call : {"ibv_open_device", "ibv_alloc_pd", "ibv_reg_mr", "ibv_create_cq",
                                 "ibv_create_qp", "ibv_modify_qp"}) {
    fabric_->gate = [&](const std::string& made) { return made == call ? ENOMEM : 0; };
    meet();
    try {
      if (high().reaches(WorldRank(0))) exchange_offers();
    } catch (const Error&) {
      high().cancel(WorldRank(0), kKey);
      low().cancel(WorldRank(1), kKey);
    }
    fabric_->gate = {};
    if (!low().reaches(WorldRank(1))) meet();
    exchange_offers();
    for (const LinkEvent& event : events()) EXPECT_TRUE(event.link) << call << event.reason;
    ends_ = {};
    EXPECT_TRUE(fabric_->all_closed()) << call;
  }
}

/// Devices are scarce, so all groups, ranks and links of a process share one context per device.
TEST_F(RdmaTransportTest, ADeviceIsOpenedOnceForAProcess) {
  meet();
  const Survey again = survey(config_, WorldRank(0), 2, devices_[0], "");
  for (std::uint64_t group = 5; group < 9; ++group) {
    exchange_offers({.group = group, .purpose = Purpose::collective, .rail = 0});
    for (const LinkEvent& event : events()) EXPECT_TRUE(event.link);
  }
  EXPECT_EQ(fabric_->open["ibv_open_device"], 2) << "one for each machine";
  EXPECT_EQ(fabric_->open["ibv_alloc_pd"], 2);
}

TEST_F(RdmaTransportTest, ADeviceThatFailedIsOpenedAnew) {
  meet();
  fabric_->report("here0", {DeviceEvent::Kind::device_gone, 0, "it is gone"});
  std::vector<LinkEvent> none;
  low().progress(none);
  fabric_->dead.clear();
  meet();
  exchange_offers();
  for (const LinkEvent& event : events()) EXPECT_TRUE(event.link) << event.reason;
}

/// The parent's objects stay open for the parent. The child closes its copies without driver calls,
/// and opens its own devices.
TEST_F(RdmaTransportTest, RightAfterAForkTheChildHasDevicesOfItsOwn) {
  meet();
  exchange_offers();
  const std::vector<LinkEvent> made = events();
  const pid_t child = ::fork();
  if (child == 0) {
    low().abandon();
    high().abandon();
    const int opened = fabric_->open["ibv_open_device"];
    const Survey own = survey(config_, WorldRank(0), 2, devices_[0], "");
    const bool anew = fabric_->open["ibv_open_device"] == opened + 1 && own.stations.size() == 1;
    ::_exit(anew ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_EQ(made[0].link->write(Bytes(100, std::byte{1})), 100u);
  Bytes got(100);
  EXPECT_EQ(made[1].link->read(got), 100u);
}

TEST_F(RdmaTransportTest, RefusesAnOfferOutOfTurn) {
  meet();
  const Blob offer = *high().dial(WorldRank(0), kKey, kNever).blob;
  const Blob answer = *low().hear(WorldRank(1), kKey, offer).blob;
  EXPECT_THROW(low().hear(WorldRank(1), kKey, offer), CorruptionError) << "offered twice";
  high().hear(WorldRank(0), kKey, answer);
  EXPECT_THROW(high().hear(WorldRank(0), kKey, answer), CorruptionError) << "answered twice";
  LinkKey other = kKey;
  other.group = 77;
  EXPECT_THROW(high().hear(WorldRank(0), other, answer), CorruptionError) << "never offered";
}

TEST(RdmaCards, GarbageIsRefused) {
  Card card = card_without("nothing");
  const std::string good = serialise(card);
  EXPECT_EQ(parse_card(WorldRank(3), good).why, "nothing");
  for (const std::string bad :
       {"", "x", "[]", "[1,2,3,4]", "[\"a\",\"b\",[1],[]]", "{\"a\":1}",
        "[\"a\",\"\",[],[[\"d\",[],\"\"]],[[1]]]", "[\"a\",\"\",[],[[\"d\",[],\"\"]],[[1e26]]]",
        "[\"a\",\"\",[],[[\"d\",[],\"\"]],[[-1]]]", "[\"a\",\"\",[],[[\"d\",[],\"\"]],[[0.0]]]",
        "[\"a\",\"\",[],[[\"d\",[],\"\"]],[0]]"})
    EXPECT_THROW(parse_card(WorldRank(3), bad), CorruptionError) << bad;
}

}  // namespace
}  // namespace mccl::transport::rdma
