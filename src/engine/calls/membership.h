// The members of a group and their ranks. Only this class converts ranks in the job to ranks in a
// group and back.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/rank.h"

namespace mccl::engine {

/// The members of one group, in rank order. Immutable.
struct Membership {
  /// `group_members`: the members' ranks in the job, in the order of their ranks in the group.
  /// `self`: the rank of this process in the job, which must be a member.
  Membership(std::string group_name, std::uint64_t group_id, std::vector<WorldRank> group_members,
             WorldRank self);

  const std::string name;
  const std::uint64_t id;  ///< Equal on all members, and never 0.
  const ByRank<GroupRank, WorldRank> members;
  const GroupRank rank;  ///< This process's rank in the group.

  int size() const { return static_cast<int>(members.size()); }
  /// Converts a member's rank in the job to its rank in the group; invalid if `world` is no member.
  GroupRank rank_of(WorldRank world) const;
  /// Returns a text such as "rank 1", followed by the member's rank in the job if that differs.
  std::string name_of(GroupRank member) const;

  /// Calls `visit` with the rank in the job of every other member.
  template <typename Visit>
  void for_each_other(Visit visit) const {
    for (GroupRank member(0); member < members.end_rank(); ++member) {
      if (member != rank) visit(members[member]);
    }
  }
};

/// Hash of a group's identity (FNV-1a, 64 bits). The hash identifies the group on the wire.
std::uint64_t group_id(const std::string& identity);

}  // namespace mccl::engine
