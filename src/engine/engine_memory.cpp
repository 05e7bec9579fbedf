// The part of Engine that concerns memory shared with the other ranks of the node.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "engine/engine.h"
#include "mccl/error.h"
#include "transport/shm/link.h"

namespace mccl::engine {
namespace {

using transport::shm::RangePlace;
using transport::shm::ShmLink;

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
  staging_changed_ = true;
  return true;
}

void Engine::report_staging() {
  std::size_t bytes = arena_ ? arena_->taken() : 0;
  for (const auto& [id, group] : groups_) {
    bytes += group->executor.scratch_bytes();
    group->channels.for_each_lane([&](Lane& lane) { bytes += lane.link().buffer_bytes(); });
  }
  staging_changed_ = false;
  const auto now = static_cast<std::int64_t>(bytes);
  options_.metrics->record_staging(now - staging_bytes_);
  staging_bytes_ = now;
}

/// Makes a link in this rank's memory; false when there is none left, and then tcp serves.
bool Engine::share_link(int peer, const rendezvous::LinkKey& key) {
  const rendezvous::Neighbour& other = *neighbour(peer);
  std::unique_ptr<ShmLink> link =
      ShmLink::make(*arena_, other.bell(), fmt::format("rank {}", peer));
  if (!link) {
    log_.warn("no memory is left for a link to rank {}: tcp is used", peer);
    return false;
  }
  ControlMessage message;
  message.kind = ControlKind::share;
  message.key = key;
  message.offer.place = link->place();
  peers_.send(peer, message);
  peers_.flush();
  rendezvous::MeshEvent made{peer, key, std::move(link), {}};
  handle(made);
  return true;
}

void Engine::take_shared_link(int peer, const rendezvous::LinkKey& key, const RangePlace& place) {
  const rendezvous::Neighbour* other = neighbour(peer);
  if (!other || key.purpose == rendezvous::Purpose::control) return;
  rendezvous::MeshEvent taken{peer, key, nullptr, {}};
  try {
    taken.link = ShmLink::join(other->arena, place, other->bell(), fmt::format("rank {}", peer));
  } catch (const Error& error) {
    taken.reason = error.what();
  }
  handle(taken);
}

}  // namespace mccl::engine
