#include "engine/peers/heartbeats.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace mccl::engine {
namespace {

/// Time after the end of a neighbour's process in which its connections should end. It is longer
/// than the repair of a connection takes to find that the peer accepts no new one.
constexpr Clock::duration kForTheConnections = std::chrono::milliseconds(600);

}  // namespace

Heartbeats::Heartbeats(Peers& peers, std::shared_ptr<const node::SharedMemory> memory,
                       Clock::duration silence)
    : Liveness(peers.size(), silence),
      peers_(peers),
      memory_(std::move(memory)),
      silence_(silence),
      beats_seen_(static_cast<std::size_t>(peers.size()), 0) {}

std::vector<Heartbeats::Silent> Heartbeats::beat(Clock::time_point now) {
  if (memory_->arena) memory_->arena->header().beats.fetch_add(1, std::memory_order_relaxed);
  for (WorldRank peer(0); peer.number() < peers_.size(); ++peer) {
    if (!memory_->neighbour(peer)) peers_.send(peer, {.kind = ControlKind::heartbeat});
  }
  listen_to_neighbours();
  std::vector<Silent> silent;
  for (const WorldRank peer : Liveness::beat(now)) {
    if (!peers_.connected(peer)) continue;
    silent.push_back(
        {peer,
         fmt::format("nothing has arrived from it for {:.3g} s (MCCL_LIVENESS_INTERVAL): it "
                     "is stopped, or its host cannot be reached ({})",
                     std::chrono::duration<double>(silence_).count(), peers_.description(peer))});
    peers_.give_up(peer, silent.back().reason);
  }
  look_for_ended(now, silent);
  return silent;
}

void Heartbeats::look_for_ended(Clock::time_point now, std::vector<Silent>& silent) {
  for (const auto& [peer, neighbour] : memory_->neighbours) {
    if (!peers_.connected(peer) || !neighbour.has_ended()) continue;
    if (now - ended_at_.try_emplace(peer, now).first->second < kForTheConnections) continue;
    const std::string& farewell = peers_.farewell(peer);
    silent.push_back({peer, !farewell.empty()
                                ? farewell
                                : fmt::format("its process has ended, although its connections are "
                                              "still open, for example in a child of that process "
                                              "({})",
                                              peers_.description(peer))});
    forget(peer);
    peers_.give_up(peer, silent.back().reason, true);
  }
}

void Heartbeats::listen_to_neighbours() {
  for (const auto& [peer, neighbour] : memory_->neighbours) {
    const std::uint64_t beats = neighbour.arena.header().beats.load(std::memory_order_relaxed);
    if (std::exchange(beats_seen_[peer], beats) != beats) Liveness::heard(peer);
  }
}

std::vector<WorldRank> Liveness::beat(Clock::time_point now) {
  const Clock::duration passed = std::min(now - last_beat_, kMostPeriods * period_);
  last_beat_ = now;
  next_beat_ = now < next_beat_ + period_ ? next_beat_ + period_ : now + period_;
  std::vector<WorldRank> lost;
  for (WorldRank rank(0); rank < peers_.end_rank(); ++rank) {
    Peer& peer = peers_[rank];
    if (peer.state == State::unknown) continue;
    if (peer.state == State::heard) {
      peer.state = State::silent;
      peer.silence = {};
      continue;
    }
    peer.silence += passed;
    if (peer.silence < limit_ + peer.patience + peer.meeting) continue;
    peer.state = State::unknown;
    lost.push_back(rank);
  }
  return lost;
}

}  // namespace mccl::engine
