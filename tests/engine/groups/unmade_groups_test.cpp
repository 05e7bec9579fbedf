#include <gtest/gtest.h>

#include <string>

#include "engine/groups/group_records.h"
#include "mccl/error.h"

namespace mccl::engine {
namespace {

ControlMessage about(std::uint64_t group, std::string reason = {}) {
  ControlMessage message;
  message.kind = ControlKind::abort;
  message.key.group = group;
  message.failure.reason = std::move(reason);
  return message;
}

TEST(UnmadeGroups, KeepMessagesOfManyGroupsInOrder) {
  UnmadeGroups unmade(3);
  constexpr std::uint64_t kGroups = 5000;
  for (std::uint64_t group = 1; group <= kGroups; ++group) {
    unmade.keep(WorldRank(1), about(group, "first"));
    unmade.keep(WorldRank(2), about(group, "second"));
  }
  for (std::uint64_t group = 1; group <= kGroups; ++group) {
    const UnmadeGroups::Said said = unmade.take(group);
    ASSERT_EQ(said.size(), 2u) << group;
    EXPECT_EQ(said[0].first, WorldRank(1));
    EXPECT_EQ(said[0].second.failure.reason, "first");
    EXPECT_EQ(said[1].first, WorldRank(2));
    EXPECT_TRUE(unmade.take(group).empty()) << "the messages are kept after take()";
  }
}

TEST(UnmadeGroups, TooManyMessagesFromOnePeerAreItsError) {
  UnmadeGroups unmade(2);
  const std::string reason(1000, 'x');
  const auto flood = [&] {
    for (std::uint64_t group = 1;; ++group) unmade.keep(WorldRank(1), about(group, reason));
  };
  EXPECT_THROW(flood(), CorruptionError);
  EXPECT_NO_THROW(unmade.keep(WorldRank(0), about(1))) << "this peer has sent nothing before";
  for (std::uint64_t group = 1; !unmade.take(group).empty(); ++group) {
  }
  EXPECT_NO_THROW(unmade.keep(WorldRank(1), about(1))) << "messages that were taken still count";
}

TEST(UnmadeGroups, RememberTheLastClosedGroups) {
  UnmadeGroups unmade(2);
  for (std::uint64_t group = 1; group <= UnmadeGroups::kMostClosed + 10; ++group) {
    unmade.made(group);
    EXPECT_FALSE(unmade.is_closed(group));
    unmade.closed(group);
    unmade.closed(group);
  }
  unmade.closed(UnmadeGroups::kMostClosed + 11);  // this group was not made
  EXPECT_FALSE(unmade.is_closed(10));
  EXPECT_TRUE(unmade.is_closed(11));
  EXPECT_TRUE(unmade.is_closed(UnmadeGroups::kMostClosed + 10));
  EXPECT_FALSE(unmade.is_closed(UnmadeGroups::kMostClosed + 11));
}

}  // namespace
}  // namespace mccl::engine
