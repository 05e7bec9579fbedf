#include "engine/groups/enqueued_calls.h"

#include <gtest/gtest.h>

#include "mccl/error.h"

namespace mccl::engine {
namespace {

using std::chrono::seconds;

constexpr Clock::time_point kStart{};

Call call_of(std::uint64_t count) {
  return {.collective = Collective::all_reduce, .dtype = DType::f32, .count = count};
}

class EnqueuedCallsOfThree : public ::testing::Test {
 protected:
  EnqueuedCallsOfThree() { calls_.reserve(); }
  void record(std::uint64_t count, int second) {
    calls_.record(call_of(count), kStart + seconds(second), kStart + seconds(second + 10));
  }
  /// Another member announces the same calls as this rank, except that the last one has `count`.
  auto hear(int member, std::uint64_t number, std::uint64_t count) {
    EnqueuedCalls::News news = calls_.last();
    news.call = call_of(count);
    news.call.sequence = number;
    return calls_.hear(GroupRank(member), news, kStart);
  }

  EnqueuedCalls calls_{3, GroupRank(0)};
};

TEST_F(EnqueuedCallsOfThree, NothingIsMissedBeforeTheFirstCall) {
  EXPECT_FALSE(calls_.missed());
  EXPECT_TRUE(calls_.take_news().empty());
  EXPECT_EQ(calls_.last().call.sequence, 0U);
  EXPECT_FALSE(hear(1, 5, 100)) << "a member may be ahead";
  EXPECT_FALSE(calls_.missed());
}

TEST_F(EnqueuedCallsOfThree, TheFirstMissedCallHasTheMembersThatLackIt) {
  record(100, 1);
  EXPECT_FALSE(hear(1, 1, 100));
  EXPECT_FALSE(hear(2, 1, 100));
  record(200, 2);
  EXPECT_FALSE(hear(1, 2, 200));
  const auto missed = calls_.missed();
  ASSERT_TRUE(missed);
  EXPECT_EQ(missed->call.sequence, 2U);
  EXPECT_EQ(missed->call.count, 200U);
  EXPECT_EQ(missed->since, kStart + seconds(2));
  EXPECT_EQ(missed->deadline, kStart + seconds(12));
  EXPECT_EQ(missed->members, std::vector{GroupRank(2)});
  EXPECT_FALSE(hear(2, 2, 200));
  EXPECT_FALSE(calls_.missed());
}

TEST_F(EnqueuedCallsOfThree, AMemberIsLateOnlyForAnAnnouncedCall) {
  record(100, 1);
  EXPECT_FALSE(calls_.late_for(1));
  const auto news = calls_.take_news();
  ASSERT_EQ(news.size(), 1U);
  EXPECT_EQ(news.front().call.sequence, 1U);
  EXPECT_TRUE(calls_.take_news().empty());
  EXPECT_FALSE(hear(1, 1, 100));
  EXPECT_EQ(calls_.late_for(1), std::vector{GroupRank(2)});
  EXPECT_FALSE(hear(2, 1, 100));
  EXPECT_EQ(calls_.late_for(1), std::vector<GroupRank>()) << "all have made it";
  EXPECT_EQ(calls_.reached(GroupRank(1)).last.sequence, 1U);
}

TEST_F(EnqueuedCallsOfThree, ADifferentCallOfTheSameNumberIsFound) {
  record(100, 1);
  EXPECT_FALSE(hear(1, 1, 100));
  record(200, 1);
  const auto difference = hear(2, 2, 201);
  ASSERT_TRUE(difference);
  EXPECT_EQ(difference->own.count, 200U);
  EXPECT_FALSE(difference->is_earlier);
}

TEST_F(EnqueuedCallsOfThree, AnEarlierDifferenceIsFound) {
  EnqueuedCalls other(3, GroupRank(1));
  other.reserve();
  for (std::uint64_t count : {100, 7, 100}) other.record(call_of(count), kStart, kStart);
  for (int i = 0; i < 3; ++i) record(100, 1);
  const auto difference = calls_.hear(GroupRank(1), other.last(), kStart);
  ASSERT_TRUE(difference);
  EXPECT_EQ(difference->own.sequence, 3U);
  EXPECT_TRUE(difference->is_earlier);
}

TEST_F(EnqueuedCallsOfThree, AMarkIsAnnouncedSoThatRanksFarApartCanCompare) {
  for (std::uint64_t i = 0; i < CallHistory::kMark + 1000; ++i) record(100, 1);
  const auto news = calls_.take_news();
  ASSERT_EQ(news.size(), 2U);
  EXPECT_EQ(news.front().call.sequence, CallHistory::kMark);
  EXPECT_EQ(news.back().call.sequence, CallHistory::kMark + 1000);
}

TEST_F(EnqueuedCallsOfThree, NothingIsMissedOrComparedOnceAMemberCaptures) {
  record(100, 1);
  calls_.stop();
  EXPECT_EQ(calls_.take_news().size(), 1U) << "the others must learn it";
  EXPECT_TRUE(calls_.take_news().empty());
  EXPECT_FALSE(hear(1, 1, 999));
  EXPECT_FALSE(calls_.missed());
  EXPECT_FALSE(calls_.late_for(1));
}

TEST_F(EnqueuedCallsOfThree, TheTimeOfAMissedCallStays) {
  record(100, 1);
  ASSERT_TRUE(calls_.missed());
  for (int i = 2; i <= 1000; ++i) record(100, i);
  const auto missed = calls_.missed();
  ASSERT_TRUE(missed);
  EXPECT_EQ(missed->since, kStart + seconds(1)) << "though it is no longer kept";
  EXPECT_EQ(missed->members, (std::vector{GroupRank(1), GroupRank(2)}));
}

TEST(Announcement, IsDecodedOnlyIfItIsWellFormed) {
  const Announcement announcement{true, false, 12345};
  const transport::Blob bytes = encode(announcement);
  EXPECT_TRUE(decode_announcement(bytes).asks);
  EXPECT_FALSE(decode_announcement(bytes).stopped);
  EXPECT_EQ(decode_announcement(bytes).digest, 12345U);
  transport::Blob wrong = bytes;
  wrong[0] = std::byte{2};
  EXPECT_THROW(decode_announcement(wrong), CorruptionError);
  wrong = bytes;
  wrong.pop_back();
  EXPECT_THROW(decode_announcement(wrong), CorruptionError);
  EXPECT_THROW(decode_announcement({}), CorruptionError);
}

}  // namespace
}  // namespace mccl::engine
