// Tests that a rank that cannot accept tcp connections reports this to the peers that dial it, even
// if tcp is only their fallback.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "engine/links/link_maker.h"
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
using transport::LinkKey;
using transport::Making;
using transport::Purpose;

constexpr const char* kTrouble = "no file descriptors are left";

/// A transport that connects without offers, like tcp, and whose connections never succeed.
class Stuck final : public transport::Transport {
 public:
  std::string_view name() const override { return "stuck"; }
  bool reaches(WorldRank) const override { return true; }
  std::string describe(WorldRank) const override { return "nothing"; }
  Making dial(WorldRank, const LinkKey&, Clock::time_point) override {
    ++dials;
    return {};
  }
  Making hear(WorldRank, const LinkKey&, std::span<const std::byte>) override {
    throw CorruptionError("it tells nothing");
  }
  void cancel(WorldRank, const LinkKey&) override {}
  std::string accepting_trouble() const override { return trouble; }

  std::string trouble;
  int dials = 0;
};

/// One rank of two, which tries `first` and then `stuck`.
class Rank {
 public:
  Rank(int rank, const std::shared_ptr<LoopbackEnds>& ends)
      : rank_(rank),
        group_(testing::membership(rank, 2)),
        channels_(
            group_, 4096, false,
            [this](Purpose purpose, GroupRank member) { maker->request(group_, purpose, member); },
            [] {}) {
    LinkMaker::Transports transports;
    auto good = std::make_unique<LoopbackTransport>(ends, "good");
    auto bad = std::make_unique<Stuck>();
    first = good.get();
    stuck = bad.get();
    transports.push_back(std::move(good));
    transports.push_back(std::move(bad));
    maker.emplace(
        WorldRank(rank), std::move(transports), std::chrono::seconds(10), peers,
        [this](std::uint64_t id) { return id == group_.id ? &channels_ : nullptr; }, log_);
  }

  bool hear() {
    bool heard = false;
    peers.receive(
        [&](WorldRank peer, const ControlMessage& message) {
          heard = true;
          maker->hear(peer, channels_, message);
        },
        [&](WorldRank, const std::string& reason) { lost_peer = reason; });
    return heard;
  }
  void progress() {
    maker->progress([](std::uint64_t) { return false; });
  }
  Channel& channel() { return channels_.at(Purpose::collective, GroupRank(1 - rank_)); }
  void need_link() { channels_.open(Purpose::collective, GroupRank(1 - rank_)); }

  LoopbackTransport* first = nullptr;
  Stuck* stuck = nullptr;
  Peers peers{2};
  std::optional<LinkMaker> maker;
  std::string lost_peer;

 private:
  const int rank_;
  const Membership group_;
  Channels channels_;
  const Log log_{rank_, LogLevel::off};
};

class DecliningLinks : public ::testing::Test {
 protected:
  DecliningLinks() {
    auto [first, second] = MemoryLink::make();
    low.peers.connect(WorldRank(1), std::move(first));
    high.peers.connect(WorldRank(0), std::move(second));
    low.stuck->trouble = kTrouble;
  }

  void settle() {
    for (bool heard = true; heard;) {
      heard = high.hear();
      heard |= low.hear();
      low.progress();
    }
  }

  void expect_both_name_the_trouble() {
    EXPECT_THAT(low.channel().lost, HasSubstr(kTrouble));
    EXPECT_THAT(high.channel().lost, HasSubstr(kTrouble));
    EXPECT_THAT(low.lost_peer + high.lost_peer, IsEmpty());
  }

  std::shared_ptr<LoopbackEnds> ends = std::make_shared<LoopbackEnds>();
  Rank low{0, ends};
  Rank high{1, ends};
};

TEST_F(DecliningLinks, TheFallbackTransportMayBeDeclinedToo) {
  high.first->broken = true;
  low.need_link();
  settle();
  EXPECT_EQ(high.stuck->dials, 1);
  expect_both_name_the_trouble();
}

TEST_F(DecliningLinks, ATransportMayBeDeclinedBeforeItIsTried) {
  low.need_link();
  high.hear();  // `high` offers a link by the first transport
  low.progress();
  high.hear();
  settle();
  EXPECT_THAT(low.lost_peer + high.lost_peer, IsEmpty());
  EXPECT_NE(low.channel().lanes[0], nullptr);
  EXPECT_THAT(low.channel().lost + high.channel().lost, IsEmpty());
}

TEST_F(DecliningLinks, ADeclinedTransportIsNotTriedAgain) {
  low.first->broken = true;
  low.need_link();
  high.hear();  // `high` offers a link by the first transport
  low.progress();
  high.hear();
  settle();
  EXPECT_EQ(high.stuck->dials, 0);
  expect_both_name_the_trouble();
}

}  // namespace
}  // namespace mccl::engine
