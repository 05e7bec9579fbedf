#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "engine/groups/group_records.h"

namespace mccl::engine {
namespace {

/// Gives a group the name and destroys the group. Returns how many groups had that identity.
std::optional<std::uint32_t> use(GroupNames& names, const std::string& name,
                                 std::uint64_t identity) {
  const std::optional<std::uint32_t> times = names.give(name, identity);
  names.give_up(name);
  return times;
}

TEST(GroupNames, BelongToOneLiveGroupAtATime) {
  GroupNames names;
  EXPECT_EQ(names.give("a", 1), 1u);
  EXPECT_EQ(names.give("a", 1), std::nullopt);
  EXPECT_EQ(names.give("a", 2), std::nullopt) << "the name is taken, whatever the members";
  names.give_up("a");
  EXPECT_EQ(names.give("a", 1), 2u);
}

TEST(GroupNames, CountTheGroupsOfOneIdentity) {
  GroupNames names;
  for (std::uint32_t times = 1; times <= 5; ++times) {
    EXPECT_EQ(use(names, "a", 1), times);
    EXPECT_EQ(use(names, "a", 2), times) << "groups of other members were counted";
  }
}

TEST(GroupNames, UseBoundedMemory) {
  GroupNames names(100);
  for (std::uint64_t i = 0; i < 10'000; ++i) {
    use(names, "group " + std::to_string(i), i);
    EXPECT_LE(names.size(), 100u);
  }
}

TEST(GroupNames, AreForgottenFromTheOldestOn) {
  GroupNames names(3);
  for (const std::uint64_t identity : {1, 2, 3}) use(names, std::to_string(identity), identity);
  use(names, "1", 1);  // makes "1" the most recently used
  use(names, "4", 4);
  EXPECT_EQ(use(names, "1", 1), 3u);
  EXPECT_EQ(use(names, "3", 3), 2u);
  EXPECT_EQ(use(names, "2", 2), 1u) << "the oldest name was not forgotten";
}

TEST(GroupNames, KeepThoseOfLiveGroups) {
  GroupNames names(3);
  EXPECT_EQ(names.give("lives", 1000), 1u);
  for (std::uint64_t i = 0; i < 10; ++i) use(names, std::to_string(i), i);
  EXPECT_EQ(names.give("lives", 1000), std::nullopt);
  names.give_up("lives");
  EXPECT_EQ(names.give("lives", 1000), 2u);
}

TEST(GroupNames, AllLiveGroupsCountBeyondTheLimit) {
  GroupNames names(3);
  for (std::uint64_t i = 0; i < 10; ++i) EXPECT_EQ(names.give(std::to_string(i), i), 1u);
  for (std::uint64_t i = 0; i < 10; ++i) names.give_up(std::to_string(i));
  EXPECT_EQ(names.size(), 3u);
  EXPECT_EQ(names.give("9", 9), 2u);
}

TEST(GroupNames, ReleaseAnUnusedName) {
  GroupNames names;
  names.give_up("a");
  use(names, "a", 1);
  names.give_up("a");
  EXPECT_EQ(names.give("a", 1), 2u);
}

}  // namespace
}  // namespace mccl::engine
