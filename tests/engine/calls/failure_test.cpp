// Tests the error text of a failure on the rank where it occurred, on the others, and in later
// calls.
#include "engine/calls/failure.h"

#include <gtest/gtest.h>

#include <string>

#include "mccl/error.h"

namespace mccl::engine {
namespace {

Call sum(std::uint64_t sequence) {
  return {
      .collective = Collective::all_reduce, .dtype = DType::f32, .count = 4, .sequence = sequence};
}

Call send_to(int peer) {
  return {.collective = Collective::send, .dtype = DType::f32, .count = 4, .peer = peer, .tag = 7};
}

Failure gone(std::optional<Call> call) {
  return {FailureKind::peer, "rank 1 is gone: it closed its end", call, GroupRank(0)};
}

constexpr const char* kLook = "; see the last output of that rank";

TEST(Failure, NamesItsCallAndRankOnceOnTheRankThatDetectedIt) {
  EXPECT_EQ(describe(gone(sum(2)), sum(2), GroupRank(0), "failed"),
            std::string("all_reduce #2 (sum of 4 f32) on rank 0 failed: rank 1 is gone: it closed "
                        "its end") +
                kLook);
}

TEST(Failure, NamesTheDetectingRankToOtherRanks) {
  EXPECT_EQ(describe(gone(sum(2)), sum(2), GroupRank(3), "failed"),
            std::string("all_reduce #2 (sum of 4 f32) on rank 3 failed, because it failed on rank "
                        "0: rank 1 is gone: it closed its end") +
                kLook);
}

TEST(Failure, NamesTheFailedCallToOtherCalls) {
  EXPECT_EQ(describe(gone(sum(2)), sum(3), GroupRank(0), "cannot start"),
            std::string("all_reduce #3 (sum of 4 f32) on rank 0 cannot start, because all_reduce "
                        "#2 (sum of 4 f32) failed: rank 1 is gone: it closed its end") +
                kLook);
  EXPECT_EQ(describe(gone(sum(2)), sum(3), GroupRank(3), "cannot start"),
            std::string("all_reduce #3 (sum of 4 f32) on rank 3 cannot start, because all_reduce "
                        "#2 (sum of 4 f32) failed on rank 0: rank 1 is gone: it closed its end") +
                kLook);
}

TEST(Failure, OfAMessageIsDescribedInFullOnlyOnTheDetectingRank) {
  EXPECT_EQ(describe(gone(a_message), send_to(1), GroupRank(0), "failed"),
            std::string("send to rank 1 (tag 7, 4 f32) on rank 0 failed: rank 1 is gone: it closed "
                        "its end") +
                kLook);
  EXPECT_EQ(describe(gone(a_message), send_to(1), GroupRank(3), "failed"),
            std::string("send to rank 1 (tag 7, 4 f32) on rank 3 failed, because a message failed "
                        "on rank 0: rank 1 is gone: it closed its end") +
                kLook);
  EXPECT_EQ(describe(gone(send_to(1)), send_to(2), GroupRank(0), "failed"),
            std::string("send to rank 2 (tag 7, 4 f32) on rank 0 failed, because send to rank 1 "
                        "(tag 7, 4 f32) failed: rank 1 is gone: it closed its end") +
                kLook);
}

TEST(Failure, DoesNotChangeACompleteReason) {
  const Failure aborted{FailureKind::aborted, "rank 2 aborted the group: enough"};
  EXPECT_EQ(describe(aborted), "rank 2 aborted the group: enough");
  EXPECT_EQ(describe(aborted, sum(2), GroupRank(0), "failed"),
            "all_reduce #2 (sum of 4 f32) on rank 0 failed: rank 2 aborted the group: enough");
}

TEST(Failure, OfTheGroupNamesTheDetectingRankAndTheNextStep) {
  EXPECT_EQ(describe(gone(sum(2))),
            std::string("all_reduce #2 (sum of 4 f32) failed on rank 0: rank 1 is gone: it closed "
                        "its end") +
                kLook);
  EXPECT_EQ(describe(gone(std::nullopt)),
            std::string("on rank 0: rank 1 is gone: it closed its end") + kLook);
}

TEST(Failure, AdvisesOnlyOnThingsThatCanBeChanged) {
  EXPECT_NE(describe(failure_of(TimeoutError("late"))).find("a longer timeout (MCCL_TIMEOUT"),
            std::string::npos);
  EXPECT_NE(describe(failure_of(MismatchError("x"))).find("the same calls in the same order"),
            std::string::npos);
  EXPECT_EQ(describe(failure_of(CorruptionError("bad bytes"))), "bad bytes");
}

}  // namespace
}  // namespace mccl::engine
