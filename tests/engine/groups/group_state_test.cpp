// Tests which messages an authenticated peer may send about a group, and how the group fails if a
// message is wrong.
#include "engine/groups/group_state.h"

#include <gtest/gtest.h>

#include "mccl/error.h"
#include "support/members.h"
#include "support/memory_link.h"
#include "support/node_process.h"

namespace mccl::engine {
namespace {

/// Rank 0 of two ranks that share memory, with only those parts of an engine that a group needs.
struct Scene {
  Scene() {
    memory->arena = node::Arena::make(std::size_t{4} << 20);
    memory->nodes = {0, 0};
    memory->neighbours.emplace(
        WorldRank(1),
        node::Neighbour{node::PeerArena(node::NodeProcess::copy(other.arena().descriptor())), {}});
    schedule::Facts facts;
    facts.nodes = {0, 0};
    group.emplace(testing::membership(0, 2), std::chrono::seconds(1), facts, Compression{},
                  surroundings);
  }

  ControlMessage window(node::RangePlace place) const {
    ControlMessage message;
    message.kind = ControlKind::window;
    message.key.group = group->id();
    message.blob = encode(WindowOffer{1 << 20, place});
    return message;
  }

  node::NodeProcess other;
  const std::shared_ptr<node::SharedMemory> memory = std::make_shared<node::SharedMemory>();
  const Config config;
  const Log log{0, LogLevel::error};
  Peers peers{2};
  LinkMaker links{
      WorldRank(0), {}, std::chrono::seconds(1), peers, [](std::uint64_t) { return nullptr; }, log};
  const std::shared_ptr<Metrics> metrics = std::make_shared<Metrics>();
  Staging staging{metrics};
  FlightRecorder recorder{{}};
  Completions completions{metrics, recorder, staging, log};
  Surroundings surroundings{config,  log,      peers,   links, completions,
                            staging, *metrics, *memory, false, [] {}};
  std::optional<GroupState> group;
};

TEST(GroupState, AWindowAtAnInvalidPlaceFailsThePeer) {
  Scene scene;
  for (const node::RangePlace place : {node::RangePlace{12345, 77}, node::RangePlace{4096, 1 << 30},
                                       node::RangePlace{UINT64_MAX - 4095, 8192}}) {
    EXPECT_THROW(scene.group->hear(WorldRank(1), scene.window(place)), CorruptionError);
  }
  EXPECT_NO_THROW(scene.group->end("over", "it is over"));
}

TEST(GroupState, ReleasesAWindowThatArrivesLate) {
  Scene scene;
  const node::Range range = scene.other.arena().allocate(std::size_t{32} << 10, 1);
  scene.group->end("over", "it is over");
  EXPECT_NO_THROW(scene.group->hear(WorldRank(1), scene.window(range.place())));
}

TEST(GroupState, RefusesAFailureAttributedToANonMember) {
  Scene scene;
  ControlMessage message;
  message.kind = ControlKind::abort;
  message.key.group = scene.group->id();
  message.failure = {FailureKind::peer, "rank 1 is gone", {}, GroupRank(2)};
  EXPECT_THROW(scene.group->hear(WorldRank(1), message), CorruptionError);
  EXPECT_FALSE(scene.group->failed());
  message.failure.seen_by = GroupRank(0);
  scene.group->hear(WorldRank(1), message);
  EXPECT_TRUE(scene.group->failed());
  EXPECT_EQ(scene.group->failure().seen_by, GroupRank(0));
}

TEST(GroupState, DestroyingAFailedGroupReportsTheReasonToMembers) {
  Scene scene;
  auto [near, far] = testing::MemoryLink::make();
  scene.peers.connect(WorldRank(1), std::move(near));
  Peers member(2);
  member.connect(WorldRank(0), std::move(far));
  ControlMessage message;
  message.kind = ControlKind::abort;
  message.key.group = scene.group->id();
  message.failure = {FailureKind::aborted, "the loss is not a number", {}, GroupRank(1)};
  scene.group->hear(WorldRank(1), message);
  scene.group->end("over", "it is over");
  std::vector<ControlMessage> heard;
  member.receive([&](WorldRank, const ControlMessage& each) { heard.push_back(each); },
                 [](WorldRank, const std::string& why) { ADD_FAILURE() << why; });
  ASSERT_EQ(heard.size(), 1u);
  EXPECT_EQ(heard[0].kind, ControlKind::abort);
  EXPECT_EQ(heard[0].failure.reason, "the loss is not a number");
}

}  // namespace
}  // namespace mccl::engine
