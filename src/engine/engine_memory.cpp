// The part of Engine that concerns memory shared with the other ranks of the node.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <thread>
#include <utility>

#include "engine/engine.h"
#include "engine/thrift.h"
#include "mccl/error.h"

namespace mccl::engine {
namespace {

using transport::shm::Arena;

/// How long a rank that gives up stays for the others.
constexpr std::chrono::seconds kLastWords{2};
/// What a group has not used for so long it gives back.
constexpr std::chrono::seconds kIdleAfter{10};

}  // namespace

void Engine::meet_neighbours(const std::string& job_key, Clock::time_point deadline) {
  const std::string& wanted = options_.config.transport;
  rendezvous::NeighbourOptions meeting{.rank = rank(),
                                       .size = size(),
                                       .store = options_.store,
                                       .job_key = job_key,
                                       .bell_pipe = wake_pipe_.writing_end(),
                                       .deadline = deadline};
  const std::size_t peers = std::min<std::size_t>(kMostPeersOfNode, size() - 1);
  std::string reason;
  try {
    // With tcp this rank only says that it shares nothing: the others may be set otherwise.
    if (wanted != "tcp") arena_ = Arena::make(arena_bytes(kGroupBytes + kBytesPerPeer * peers));
    meeting.arena = arena_.get();
  } catch (const Error& error) {
    reason = error.what();
    log_.warn("no memory is shared with other ranks: {}", reason);
  }
  neighbourhood_ = rendezvous::meet_neighbours(meeting);
  if (wanted == "shm" && neighbourhood_.neighbours.size() + 1 != static_cast<std::size_t>(size())) {
    let_all_meet();
    throw PeerError(
        fmt::format("MCCL_TRANSPORT is shm, but rank {} shares memory with {} of the {} other "
                    "ranks{}{}: set it "
                    "to auto to reach the rest through tcp",
                    rank(), neighbourhood_.neighbours.size(), size() - 1,
                    reason.empty() ? "" : ", because ", reason));
  }
  if (neighbourhood_.neighbours.empty()) {
    arena_.reset();
  } else {
    sleeper_.emplace(arena_->header());
  }
  if (wanted != "tcp") tell_of_missing_neighbours();
  // More ranks than cores: who waits gives its core away at once.
  const auto cores = std::thread::hardware_concurrency();
  const auto here = std::count_if(endpoints_.begin(), endpoints_.end(), [this](const auto& other) {
    return other.host == mesh_->endpoint().host;
  });
  crowded_ = here > static_cast<std::ptrdiff_t>(cores);
}

/// Waits until no rank needs the store any more, which may be served by this one: so that each
/// finds its own error and not that this one has left.
void Engine::let_all_meet() const {
  const auto key = [](int rank) { return fmt::format("mccl/gives up/{}", rank); };
  try {
    options_.store->set(key(rank()), "");
    for (int peer = 0; peer < size(); ++peer) {
      options_.store->get(key(peer), kLastWords);
    }
  } catch (const Error&) {
    return;  // whoever does not come has another error, and has had its time
  }
}

/// Ranks that say they are on this machine, but share no memory with this one.
void Engine::tell_of_missing_neighbours() const {
  std::string missing;
  for (const rendezvous::Endpoint& other : endpoints_) {
    if (other.rank == rank() || other.host != mesh_->endpoint().host || neighbour(other.rank)) {
      continue;
    }
    missing += fmt::format("{}{}", missing.empty() ? "" : ", ", other.rank);
  }
  if (missing.empty()) return;
  log_.warn(
      "rank {} is on the same machine, but shares no memory with this rank (another container or "
      "user, or no memory left): tcp is used between them",
      missing);
}

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
