// Tests how a peer can affect this rank by its messages, and by not reading this rank's messages.
#include "engine/peers/peers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <new>
#include <string>
#include <vector>

#include "support/memory_link.h"

namespace mccl::engine {
namespace {

using testing::MemoryLink;

constexpr WorldRank kFirst(1);
constexpr WorldRank kSecond(2);

ControlMessage probe() {
  ControlMessage message;
  message.kind = ControlKind::probe;
  return message;
}

/// Rank 0 of three, and the ends of its connections that ranks 1 and 2 hold.
struct Scene {
  Scene() {
    for (const WorldRank peer : {kFirst, kSecond}) {
      auto [near, far] = MemoryLink::make(std::size_t{1} << 20);
      peers.connect(peer, std::move(near));
      ends.push_back(std::move(far));
    }
  }

  bool receive() {
    return peers.receive([this](WorldRank rank, const ControlMessage&) { heard.push_back(rank); },
                         [this](WorldRank rank, const std::string& why) {
                           lost.push_back(rank);
                           reason = why;
                         });
  }

  Peers peers{3};
  std::vector<std::unique_ptr<MemoryLink>> ends;
  std::vector<WorldRank> heard, lost;
  std::string reason;
};

TEST(Peers, AnEndlessSenderDoesNotStarveOthers) {
  Scene scene;
  for (int i = 0; i < 10 * Peers::kMessagesAtATime; ++i) scene.ends[0]->write(encode(probe()));
  scene.ends[1]->write(encode(probe()));
  EXPECT_TRUE(scene.receive()) << "receive() did not report that more messages wait";
  EXPECT_EQ(scene.heard.size(), Peers::kMessagesAtATime + 1);
  EXPECT_EQ(scene.heard.back(), kSecond);
  while (scene.receive()) {
  }
  EXPECT_EQ(scene.heard.size(), 10 * Peers::kMessagesAtATime + 1);
  EXPECT_TRUE(scene.lost.empty());
}

TEST(Peers, RetriesAMessageThatFoundNoMemory) {
  Scene scene;
  scene.ends[0]->write(encode(probe()));
  const auto no_memory = [](WorldRank, const ControlMessage&) { throw std::bad_alloc(); };
  EXPECT_THROW(scene.peers.receive(no_memory, [](WorldRank, const std::string&) {}),
               std::bad_alloc);
  scene.receive();
  EXPECT_EQ(scene.heard, std::vector<WorldRank>{kFirst});
  EXPECT_TRUE(scene.lost.empty());
}

TEST(Peers, APeerThatDoesNotReadIsLostBeforeItsQueueGrowsLarge) {
  Scene scene;
  const std::size_t bytes = encode(probe()).size();
  const std::size_t most = 2 * (ControlConnection::kMostUnsentBytes / bytes);
  for (std::size_t i = 0; i < most; ++i) scene.peers.send(kFirst, probe());
  scene.receive();
  EXPECT_EQ(scene.lost, std::vector<WorldRank>{kFirst});
  EXPECT_THAT(scene.reason, ::testing::HasSubstr("32 MiB are queued"));
  EXPECT_TRUE(scene.peers.connected(kSecond));
}

}  // namespace
}  // namespace mccl::engine
