// The part of Engine that concerns memory shared with the other ranks of the node.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "engine/engine.h"
#include "mccl/error.h"

namespace mccl::engine {
namespace {

/// What a group has not used for so long it gives back.
constexpr std::chrono::seconds kIdleAfter{10};

}  // namespace

const rendezvous::Neighbour* Engine::neighbour(int peer) const {
  const auto found = neighbourhood_.neighbours.find(peer);
  return found == neighbourhood_.neighbours.end() ? nullptr : &found->second;
}

/// By rank of a group; empty when no two of its members share a node.
std::vector<int> Engine::nodes_of(const std::vector<int>& members) const {
  if (neighbourhood_.nodes.empty()) return {};
  std::map<int, int> counts;
  std::vector<int> nodes;
  for (const int member : members) {
    nodes.push_back(neighbourhood_.nodes[static_cast<std::size_t>(member)]);
    ++counts[nodes.back()];
  }
  if (counts.size() == nodes.size()) return {};
  for (int& node : nodes) {
    node = static_cast<int>(std::distance(counts.begin(), counts.find(node)));
  }
  return nodes;
}

void Engine::offer_window(GroupState& group) {
  ControlMessage message;
  message.kind = ControlKind::window;
  message.key.group = group.id;
  message.offer = group.window.offer(arena_);
  for (const int member : group.members) {
    if (member != rank()) peers_.send(member, message);
  }
  peers_.flush();
}

/// Whether the group's calls can be planned: all know how large its window is.
bool Engine::window_ready(GroupState& group) {
  if (group.window.settled()) return true;
  if (!group.window.offered()) offer_window(group);
  if (group.window.pending()) {
    for (const int member : group.window.missing_members()) {
      const std::string& lost = group.channels.at(rendezvous::Purpose::collective, member).lost;
      if (!lost.empty()) throw PeerError(fmt::format("rank {} is gone: {}", member, lost));
    }
    next_housekeeping_ = {};
    return false;
  }
  group.window.settle([&](int member) -> const rendezvous::Neighbour& {
    return *neighbour(group.members[static_cast<std::size_t>(member)]);
  });
  schedule::Facts facts = group.plans.facts();
  facts.window_bytes = group.window.call_bytes();
  if (facts.window_bytes == 0) {
    log_.warn(
        "group '{}' shares no window, because a rank of it has no memory left for one: its "
        "collectives go through links",
        group.name);
    facts.nodes.clear();
  }
  group.plans.learn(std::move(facts));
  weigh(group);
  return true;
}

/// The group takes another amount of memory for passing data on.
void Engine::weigh(GroupState& group) {
  std::size_t bytes = group.executor.scratch_bytes();
  group.channels.for_each_lane([&](Lane& lane) { bytes += lane.link().buffer_bytes(); });
  groups_bytes_ += static_cast<std::int64_t>(bytes) -
                   std::exchange(group.staging_bytes, static_cast<std::int64_t>(bytes));
  staging_changed_ = true;
}

void Engine::report_staging() {
  if (!std::exchange(staging_changed_, false)) return;
  const std::int64_t now = groups_bytes_ + static_cast<std::int64_t>(arena_ ? arena_->taken() : 0);
  options_.metrics->record_staging(now - staging_bytes_);
  staging_bytes_ = now;
}

/// What groups that nobody has used for a while keep for their next call.
void Engine::release_idle(Clock::time_point now) {
  if (arena_) arena_->collect();
  for (const auto& [id, group] : groups_) {
    const std::uint64_t calls = group->sequence.load(std::memory_order_relaxed);
    if (group->active || std::exchange(group->calls_when_idle, calls) != calls) {
      group->idle_since = now;
    }
    if (group->idle_since == now || now - group->idle_since < kIdleAfter) continue;
    if (group->executor.scratch_bytes() == 0 && group->plans.empty()) continue;
    group->executor.release_scratch();
    group->plans.clear();
    weigh(*group);
  }
  staging_changed_ = true;
  report_staging();
}

}  // namespace mccl::engine
