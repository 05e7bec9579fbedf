// Tests the exchange of status reports between two ranks.
#include "engine/peers/reports.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "mccl/error.h"
#include "support/memory_link.h"

namespace mccl::engine {
namespace {

using testing::MemoryLink;

constexpr WorldRank kAsking(0);
constexpr WorldRank kAsked(1);

ControlMessage piece(std::uint64_t request, std::size_t bytes) {
  ControlMessage message{.kind = ControlKind::description};
  message.call.sequence = request;
  message.blob.assign(bytes, std::byte{'x'});
  return message;
}

/// Two ranks, one of which asks.
struct TwoRanks {
  TwoRanks() {
    auto [near, far] = MemoryLink::make(std::size_t{1} << 20);
    peers_of_asking.connect(kAsked, std::move(near));
    peers_of_asked.connect(kAsking, std::move(far));
  }

  void deliver(Peers& peers, Reports& reports) const {
    const auto hear = [&](WorldRank from, const ControlMessage& message) {
      reports.hear(from, message, now);
    };
    while (peers.receive(hear, [](WorldRank, const std::string&) {})) {
    }
  }
  void deliver() {
    deliver(peers_of_asked, asked);
    deliver(peers_of_asking, asking);
  }

  Clock::time_point now{std::chrono::hours(1)};
  std::string report = "rank 1 is well";
  int made = 0;
  Peers peers_of_asking{2};
  Peers peers_of_asked{2};
  Reports asking{peers_of_asking, [] { return std::string(); }};
  Reports asked{peers_of_asked, [this] {
                  ++made;
                  return report;
                }};
};

bool is_ready(const std::future<void>& future) {
  return future.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

TEST(Reports, ArriveWholeWhateverTheirLength) {
  for (const std::size_t bytes :
       {std::size_t{1}, transport::kMostBlobBytes - 1, transport::kMostBlobBytes,
        transport::kMostBlobBytes + 1, Reports::kMostBytes}) {
    TwoRanks scene;
    scene.report = std::string(bytes, 'r');
    const std::future<void> complete = scene.asking.request();
    EXPECT_FALSE(is_ready(complete));
    scene.deliver();
    EXPECT_TRUE(is_ready(complete)) << bytes;
    EXPECT_EQ(scene.asking.take().at(kAsked), scene.report);
  }
}

TEST(Reports, ARankThatDoesNotAnswerHasAnEmptyReport) {
  TwoRanks scene;
  (void)scene.asking.request();
  EXPECT_EQ(scene.asking.take().at(kAsked), "");
}

TEST(Reports, ARankThatIsLostIsNoLongerAwaited) {
  TwoRanks scene;
  const std::future<void> complete = scene.asking.request();
  scene.asking.forget(kAsked);
  EXPECT_TRUE(is_ready(complete));
  EXPECT_TRUE(scene.asking.take().empty());
  scene.deliver();  // the report arrives too late
}

TEST(Reports, AnAnswerToAnEarlierRequestIsDropped) {
  TwoRanks scene;
  (void)scene.asking.request();
  (void)scene.asking.take();
  scene.deliver();
  scene.now += Reports::kFresh;
  const std::future<void> complete = scene.asking.request();
  scene.asking.hear(kAsked, piece(1, 3), scene.now);
  EXPECT_FALSE(is_ready(complete));
  scene.deliver();
  EXPECT_TRUE(is_ready(complete));
}

TEST(Reports, APeerGetsOneReportInAnInterval) {
  TwoRanks scene;
  std::uint64_t asked = 0;
  std::vector<std::uint64_t> rounds;
  const auto note = [&](WorldRank, const ControlMessage& message) {
    rounds.push_back(message.call.sequence);
  };
  const auto sent = [&] {
    rounds.clear();
    while (scene.peers_of_asking.receive(note, [](WorldRank, const std::string&) {})) {
    }
    return rounds;
  };
  const auto ask = [&] {
    ControlMessage request{.kind = ControlKind::describe};
    request.call.sequence = ++asked;
    scene.asked.hear(kAsking, request, scene.now);
  };
  EXPECT_EQ(scene.asked.next_answer(), Clock::time_point::max());
  for (int i = 0; i < 100; ++i) ask();
  EXPECT_EQ(sent(), std::vector<std::uint64_t>{1});
  EXPECT_EQ(scene.asked.next_answer(), scene.now + Reports::kFresh);
  scene.asked.answer_late(scene.now);
  EXPECT_TRUE(sent().empty());
  scene.now += Reports::kFresh;
  scene.asked.answer_late(scene.now);
  EXPECT_EQ(sent(), std::vector<std::uint64_t>{100});
  EXPECT_EQ(scene.made, 2);
  EXPECT_EQ(scene.asked.next_answer(), Clock::time_point::max());
}

TEST(Reports, APeerThatIsLostGetsNoLateReport) {
  TwoRanks scene;
  for (int i = 0; i < 2; ++i) scene.asked.hear(kAsking, {.kind = ControlKind::describe}, scene.now);
  scene.asked.forget(kAsking);
  scene.asked.answer_late(scene.now + Reports::kFresh);
  EXPECT_EQ(scene.made, 1);
}

TEST(Reports, ASecondRequestIsAnsweredLater) {
  TwoRanks scene;
  (void)scene.asking.request();
  scene.deliver();
  (void)scene.asking.take();
  const std::future<void> complete = scene.asking.request();
  scene.deliver();
  EXPECT_FALSE(is_ready(complete));
  scene.asked.answer_late(scene.now + Reports::kFresh);
  scene.deliver();
  EXPECT_TRUE(is_ready(complete));
  EXPECT_EQ(scene.asking.take().at(kAsked), scene.report);
}

TEST(Reports, APeerCannotFillTheMemoryOfTheRankThatAsks) {
  TwoRanks scene;
  (void)scene.asking.request();
  const auto send_without_end = [&] {
    for (std::size_t bytes = 0; bytes <= Reports::kMostBytes; bytes += transport::kMostBlobBytes)
      scene.asking.hear(kAsked, piece(1, transport::kMostBlobBytes), scene.now);
  };
  EXPECT_THROW(send_without_end(), CorruptionError);
}

TEST(Reports, NothingIsAwaitedFromAPeerThatIsGone) {
  Peers peers(2);
  Reports reports(peers, [] { return std::string(); });
  EXPECT_TRUE(is_ready(reports.request()));
  EXPECT_TRUE(reports.take().empty());
}

}  // namespace
}  // namespace mccl::engine
