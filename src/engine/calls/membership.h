// Who is in a group, and as what: the one place where ranks of the job become ranks of a group.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/rank.h"

namespace mccl::engine {

/// Constant.
struct Membership {
  /// `members` in the order of their ranks in the group; `self`, this rank of the job, among them.
  Membership(std::string group_name, std::uint64_t group_id, std::vector<WorldRank> group_members,
             WorldRank self);

  const std::string name;
  const std::uint64_t id;  ///< Equal on all members, and never 0.
  const ByRank<GroupRank, WorldRank> members;
  const GroupRank rank;  ///< This one's.

  int size() const { return static_cast<int>(members.size()); }
  /// None for a stranger.
  GroupRank rank_of(WorldRank world) const;
  /// "rank 1", with the world's rank where it differs.
  std::string name_of(GroupRank member) const;

  /// Calls `visit` with the world's rank of every member but this one.
  template <typename Visit>
  void for_each_other(Visit visit) const {
    for (GroupRank member(0); member < members.end_rank(); ++member) {
      if (member != rank) visit(members[member]);
    }
  }
};

/// The id that a group's identity stands for on the wire (FNV-1a, 64 bits).
std::uint64_t group_id(const std::string& identity);

}  // namespace mccl::engine
