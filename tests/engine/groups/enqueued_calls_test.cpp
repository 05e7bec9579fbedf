#include "engine/groups/enqueued_calls.h"

#include <gtest/gtest.h>

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
  std::optional<Call> hear(int member, std::uint64_t number, std::uint64_t count) {
    Call call = call_of(count);
    call.sequence = number;
    return calls_.hear(GroupRank(member), call);
  }

  EnqueuedCalls calls_{3, GroupRank(0)};
};

TEST_F(EnqueuedCallsOfThree, NothingIsMissedBeforeTheFirstCall) {
  EXPECT_FALSE(calls_.missed());
  EXPECT_FALSE(calls_.has_news());
  EXPECT_EQ(calls_.announce().sequence, 0U);
  EXPECT_FALSE(hear(1, 5, 100)) << "a member may be ahead";
  EXPECT_FALSE(calls_.missed());
}

TEST_F(EnqueuedCallsOfThree, TheFirstMissedCallHasTheMembersThatLackIt) {
  record(100, 1);
  record(200, 2);
  EXPECT_FALSE(hear(1, 2, 200));
  EXPECT_FALSE(hear(2, 1, 100));
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
  EXPECT_TRUE(calls_.late_for(1).empty());
  EXPECT_TRUE(calls_.has_news());
  EXPECT_EQ(calls_.announce().sequence, 1U);
  EXPECT_FALSE(calls_.has_news());
  EXPECT_FALSE(hear(1, 1, 100));
  EXPECT_EQ(calls_.late_for(1), std::vector{GroupRank(2)});
  EXPECT_EQ(calls_.last_of(GroupRank(1)).sequence, 1U);
}

TEST_F(EnqueuedCallsOfThree, ADifferentCallOfTheSameNumberIsFound) {
  record(100, 1);
  record(200, 1);
  EXPECT_FALSE(hear(1, 1, 100));
  const std::optional<Call> own = hear(2, 2, 201);
  ASSERT_TRUE(own);
  EXPECT_EQ(own->count, 200U);
}

TEST_F(EnqueuedCallsOfThree, CallsThatAreNoLongerKeptCountFromTheOldestThatIs) {
  for (int i = 1; i <= 1000; ++i) record(100, i);
  EXPECT_FALSE(hear(1, 3, 999)) << "call 3 is not kept, so it cannot be compared";
  const auto missed = calls_.missed();
  ASSERT_TRUE(missed);
  EXPECT_EQ(missed->call.sequence, 937U);
  EXPECT_EQ(missed->since, kStart + seconds(937));
  EXPECT_EQ(missed->members, (std::vector{GroupRank(1), GroupRank(2)}));
}

}  // namespace
}  // namespace mccl::engine
