#include <gtest/gtest.h>

#include <deque>
#include <random>

#include "transport/rdma/pair/message.h"

namespace mccl::transport::rdma {
namespace {

TEST(RdmaCredits, SendsNeverExceedPostedReceives) {
  Credits credits(16);
  int sent = 0;
  for (; credits.may_send_data(); ++sent) credits.send();
  EXPECT_EQ(sent, 16 - static_cast<int>(Credits::kReserved));
  for (; credits.may_send_credit(); ++sent) credits.send();
  EXPECT_EQ(sent, 15);
  EXPECT_TRUE(credits.may_close());
  credits.send();
  EXPECT_FALSE(credits.may_close());
}

TEST(RdmaCredits, CountsWrapAround) {
  Credits credits(16);
  for (std::uint64_t i = 0; i < 1000; ++i) {
    credits.send();
    credits.return_one();
    ASSERT_TRUE(credits.hear(static_cast<std::uint32_t>(i + 1)));
    ASSERT_EQ(credits.left(), 16u);
  }
}

TEST(RdmaCredits, DetectsFalseCredits) {
  Credits credits(16);
  for (int i = 0; i < 5; ++i) credits.send();
  EXPECT_FALSE(credits.hear(6)) << "more than was sent";
  EXPECT_TRUE(credits.hear(3));
  EXPECT_FALSE(credits.hear(2)) << "less than the peer has returned before";
  EXPECT_TRUE(credits.hear(5));
}

enum class Kind { data, probe, other };

/// One end, with the messages in flight to it. Each message is its kind and the credit that it
/// returns.
struct End {
  Credits credits{Credits::kLeastDepth};
  std::deque<std::pair<std::uint32_t, Kind>> arriving;
  int kept = 0;  ///< Data messages that it has not taken yet.
  bool owes_answer = false;

  void send(End& peer, Kind kind) {
    const std::uint32_t returned = credits.returned();
    credits.send();
    peer.arriving.emplace_back(returned, kind);
  }
  void poll(End& peer) {
    for (; !arriving.empty(); arriving.pop_front()) {
      const auto [returned, kind] = arriving.front();
      ASSERT_TRUE(credits.hear(returned));
      kind == Kind::data ? static_cast<void>(++kept) : credits.return_one();
      owes_answer |= kind == Kind::probe;
    }
    if (owes_answer && credits.may_send_credit()) {
      send(peer, Kind::other);
      owes_answer = false;
    }
    if (credits.owes_credit() && credits.may_send_credit()) send(peer, Kind::other);
  }
};

/// Both ends poll and take at random. Whenever both have polled and taken everything, both may
/// send.
TEST(RdmaCredits, BothEndsNeverRunOutTogether) {
  std::mt19937 random(1);
  End ends[2];
  for (int step = 0; step < 200'000; ++step) {
    End& end = ends[random() % 2];
    End& peer = &end == &ends[0] ? ends[1] : ends[0];
    switch (random() % 4) {
      case 0:
        while (random() % 8 != 0 && end.credits.may_send_data()) end.send(peer, Kind::data);
        break;
      case 1:
        while (random() % 8 != 0 && end.credits.may_send_probe()) end.send(peer, Kind::probe);
        break;
      case 2:
        ASSERT_NO_FATAL_FAILURE(end.poll(peer));
        break;
      default:
        for (; end.kept > 0 && random() % 8 != 0; --end.kept) end.credits.return_one();
    }
    ASSERT_LE(peer.arriving.size() + static_cast<std::size_t>(peer.kept), Credits::kLeastDepth);
    if (step % 1000 != 0) continue;
    for (int i = 0; i < 4; ++i) {
      for (int a = 0; a < 2; ++a) {
        for (; ends[a].kept > 0; --ends[a].kept) ends[a].credits.return_one();
        ASSERT_NO_FATAL_FAILURE(ends[a].poll(ends[1 - a]));
      }
    }
    ASSERT_TRUE(ends[0].credits.may_send_data()) << "step " << step;
    ASSERT_TRUE(ends[1].credits.may_send_data()) << "step " << step;
  }
}

}  // namespace
}  // namespace mccl::transport::rdma
