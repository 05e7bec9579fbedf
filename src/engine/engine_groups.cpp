// The part of Engine that makes and closes groups.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "engine/engine.h"
#include "mccl/error.h"

namespace mccl::engine {
namespace {

/// Returns the members as ranks of the job. Throws InvalidArgument unless they are distinct, valid
/// and include this rank.
std::vector<WorldRank> checked_members(const std::string& group, const std::vector<int>& ranks,
                                       int self, int size) {
  std::vector<WorldRank> members;
  for (const int rank : ranks) {
    if (rank < 0 || rank >= size || std::count(ranks.begin(), ranks.end(), rank) != 1) {
      throw InvalidArgument(
          fmt::format("group '{}': rank {} is listed, but members are distinct ranks from 0 to {}",
                      group, rank, size - 1));
    }
    members.emplace_back(rank);
  }
  if (std::find(ranks.begin(), ranks.end(), self) == ranks.end()) {
    throw InvalidArgument(
        fmt::format("group '{}': this rank, {}, is not among its members", group, self));
  }
  return members;
}

}  // namespace

std::shared_ptr<GroupState> Engine::make_group(const std::string& name,
                                               const std::vector<int>& ranks,
                                               std::chrono::milliseconds timeout,
                                               const Compression& compression) {
  refuse_in_child();
  const std::vector<WorldRank> members = checked_members(name, ranks, rank(), size());
  schedule::Facts facts = facts_;
  facts.nodes = nodes_of(members);
  facts.cables = cables_of(ranks);
  // The identity is numbered so that it differs from earlier groups of the same name, which other
  // ranks may still hold.
  const std::string identity = fmt::format("{}\n{}\n", name, fmt::join(ranks, " "));
  std::uint32_t number = 0;
  {
    std::lock_guard lock(inbox_.mutex());
    const std::optional<std::uint32_t> times = names_.give(name, group_id(identity));
    if (!times) {
      throw InvalidArgument(fmt::format("a group named '{}' exists on rank {}", name, rank()));
    }
    number = *times;
  }
  std::shared_ptr<GroupState> group;
  try {
    group = std::make_shared<GroupState>(
        Membership(name, group_id(identity + std::to_string(number)), members, WorldRank(rank())),
        timeout, std::move(facts), compression, surroundings_);
    inbox_.create(group);
  } catch (...) {
    const std::lock_guard lock(inbox_.mutex());
    names_.take_back(name);
    throw;
  }
  if (compression.codec != Codec::none && group->is_one_node() && ranks.front() == rank()) {
    log_.info(
        "sums of group '{}' are exact: its ranks share memory, where nothing is gained with {}",
        name, describe(compression));
  }
  return group;
}

/// Returns the node of each member, indexed by group rank; empty if no two members share a node.
std::vector<int> Engine::nodes_of(const std::vector<WorldRank>& members) const {
  if (nodes().empty()) return {};
  std::map<int, int> counts;
  std::vector<int> found;
  for (const WorldRank member : members) {
    found.push_back(nodes()[member.index()]);
    ++counts[found.back()];
  }
  if (counts.size() == found.size()) return {};
  for (int& node : found) {
    node = static_cast<int>(std::distance(counts.begin(), counts.find(node)));
  }
  return found;
}

/// Returns the cables between the members; null if one network joins all ranks.
std::shared_ptr<const schedule::CableMap> Engine::cables_of(const std::vector<int>& members) const {
  if (cabling_.is_one_network()) return nullptr;
  return std::make_shared<schedule::CableMap>(cabling_, members, facts_.latency_s,
                                              facts_.bytes_per_s);
}

std::vector<std::string> Engine::equal_ways(int peer) {
  if (peer >= options_.rank) return {""};
  const std::lock_guard lock(driver_.mutex());
  return links_.equal_ways(WorldRank(peer));
}

void Engine::take_way(int peer, std::size_t way) {
  const std::lock_guard lock(driver_.mutex());
  links_.take_way(WorldRank(peer), way);
}

schedule::Facts Engine::facts_of(GroupState& group) {
  std::lock_guard lock(driver_.mutex());
  return group.facts();
}

void Engine::carry_by(const std::shared_ptr<GroupState>& group, std::unique_ptr<Carrier> carrier) {
  const std::lock_guard lock(driver_.mutex());
  groups_.departing().add(group->carry_by(std::move(carrier)), Clock::now());
}

void Engine::close_group(const std::shared_ptr<GroupState>& group) noexcept {
  if (abandoned_) return;
  {
    std::lock_guard lock(inbox_.mutex());
    names_.give_up(group->membership().name);
  }
  inbox_.close(group);
  driver_.wake();
}

}  // namespace mccl::engine
