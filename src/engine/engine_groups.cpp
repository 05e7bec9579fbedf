// The part of Engine that makes and closes groups.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "engine/engine.h"
#include "mccl/error.h"

namespace mccl::engine {
namespace {

/// Returns the members as ranks of the job. Throws InvalidArgument if a rank is invalid or
/// repeated, or if this rank is missing.
std::vector<WorldRank> checked_members(const std::string& group, const std::vector<int>& ranks,
                                       int self, int size) {
  std::vector<WorldRank> members;
  for (const int rank : ranks) {
    if (rank < 0 || rank >= size || std::count(ranks.begin(), ranks.end(), rank) != 1) {
      throw InvalidArgument(
          fmt::format("group '{}': member {} is invalid or repeated; members must be distinct "
                      "ranks from 0 to {}",
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

std::string list(const Standings& standings, Standing which) {
  std::vector<int> ranks;
  for (GroupRank member(0); member < standings.end_rank(); ++member) {
    if (standings[member] == which) ranks.push_back(member.number());
  }
  return ranks.empty() ? "none" : fmt::format("{}", fmt::join(ranks, ", "));
}

/// Throws PeerError if the group must not continue with the members that are present, or if the
/// other members have excluded this rank.
void check_survivors(const std::string& call, GroupRank self, const Standings& standings) {
  if (standings[self] != Standing::present) {
    throw PeerError(fmt::format(
        "{} failed: another rank could not reach this rank, so the other ranks continue without "
        "this rank; end this process and restart it to join a new job",
        call));
  }
  if (may_go_on(standings)) return;
  throw PeerError(fmt::format(
      "{} failed: this rank reaches too few of the ranks that may be alive (reached: {}; not "
      "reached: {}), and the ranks not reached may continue without this rank; check the network "
      "between the ranks",
      call, list(standings, Standing::present), list(standings, Standing::silent)));
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
  // `number` makes the group's ID differ from the IDs of earlier groups of the same name and
  // members, which other ranks may not have destroyed yet.
  const std::string identity = fmt::format("{}\n{}\n", name, fmt::join(ranks, " "));
  std::uint32_t number = 0;
  {
    std::lock_guard lock(inbox_.mutex());
    const std::optional<std::uint32_t> times = names_.give(name, group_id(identity));
    if (!times) {
      throw InvalidArgument(
          fmt::format("a group named '{}' already exists on rank {}", name, rank()));
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
    log_.info("group '{}' does not compress sums: its ranks share memory, so {} would save nothing",
              name, describe(compression));
  }
  return group;
}

/// Returns the node number of each member, indexed by group rank; empty if no two members share a
/// node.
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

/// Acquires the progress lock by WayGuard, because a caller that waits for its call holds the lock
/// even while it sleeps.
Engine::Survivors Engine::survivors_of(const std::shared_ptr<GroupState>& group,
                                       std::chrono::milliseconds timeout) {
  refuse_in_child();
  const std::string call = fmt::format("shrink of group '{}' on rank {}", group->membership().name,
                                       group->membership().rank);
  std::shared_ptr<SurvivorSearch> search;
  {
    const WayGuard way(driver_, Clock::time_point::max());
    search = group->find_survivors(shared_from_this());
  }
  const Clock::time_point deadline = deadline_after(Clock::now(), timeout);
  while (!search->done() && Clock::now() < deadline) driver_.help(*search, deadline);
  std::optional<WayGuard> way(std::in_place, driver_, Clock::time_point::max());
  const bool done = search->done();
  const Agreement& agreement = group->agreement();
  const std::vector<GroupRank> missing = agreement.missing();
  const Standings standings = done && agreement.decision() ? *agreement.decision() : Standings();
  const std::uint64_t round = agreement.round();
  way.reset();
  if (done && search->error()) std::rethrow_exception(search->error());
  if (standings.empty()) {
    throw TimeoutError(fmt::format(
        "{} timed out after {} ms: rank{} {} did not call shrink; every surviving rank must call "
        "shrink",
        call, timeout.count(), missing.size() == 1 ? "" : "s", fmt::join(missing, ", ")));
  }
  check_survivors(call, group->membership().rank, standings);
  Survivors survivors;
  survivors.round = round;
  for (GroupRank member(0); member < standings.end_rank(); ++member) {
    if (standings[member] == Standing::present)
      survivors.ranks.push_back(group->membership().members[member].number());
  }
  return survivors;
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

void Engine::read_processes() {
  const std::lock_guard lock(driver_.mutex());
  surroundings_.reads_processes = true;
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
