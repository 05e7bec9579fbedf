#include "engine/calls/membership.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace mccl::engine {
namespace {

GroupRank find(const ByRank<GroupRank, WorldRank>& members, WorldRank world) {
  const auto found = std::find(members.begin(), members.end(), world);
  return found == members.end() ? GroupRank()
                                : GroupRank(static_cast<int>(found - members.begin()));
}

}  // namespace

Membership::Membership(std::string group_name, std::uint64_t group_id,
                       std::vector<WorldRank> group_members, WorldRank self)
    : name(std::move(group_name)),
      id(group_id),
      members(std::move(group_members)),
      rank(find(members, self)) {}

GroupRank Membership::rank_of(WorldRank world) const { return find(members, world); }

std::string Membership::name_of(GroupRank member) const {
  const int world = members[member].number();
  if (world == member.number()) return fmt::format("rank {}", member);
  return fmt::format("rank {} (rank {} of the job)", member, world);
}

std::uint64_t group_id(const std::string& identity) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : identity) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  }
  return hash == 0 ? 1 : hash;  // LinkKey::group is 0 for control connections
}

}  // namespace mccl::engine
