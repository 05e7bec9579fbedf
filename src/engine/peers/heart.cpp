#include "engine/peers/heart.h"

#include <fmt/format.h>

#include <utility>

namespace mccl::engine {

Heart::Heart(Peers& peers, std::shared_ptr<const node::SharedMemory> memory,
             Clock::duration silence)
    : peers_(peers),
      memory_(std::move(memory)),
      silence_(silence),
      liveness_(peers.size(), silence),
      beats_seen_(static_cast<std::size_t>(peers.size()), 0) {}

std::vector<Heart::Silent> Heart::beat(Clock::time_point now) {
  if (memory_->arena) memory_->arena->header().beats.fetch_add(1, std::memory_order_relaxed);
  ControlMessage heartbeat;
  heartbeat.kind = ControlKind::heartbeat;
  for (WorldRank peer(0); peer.number() < peers_.size(); ++peer) {
    if (!memory_->neighbour(peer)) peers_.send(peer, heartbeat);
  }
  listen_to_neighbours();
  std::vector<Silent> silent;
  for (const WorldRank peer : liveness_.beat(now)) {
    if (!peers_.connected(peer)) continue;
    silent.push_back(
        {peer, fmt::format("nothing has arrived from it for {:.3g} s (MCCL_LIVENESS_INTERVAL): it "
                           "is stopped, or its host cannot be reached",
                           std::chrono::duration<double>(silence_).count())});
    peers_.give_up(peer, silent.back().reason);
  }
  return silent;
}

void Heart::listen_to_neighbours() {
  for (const auto& [peer, neighbour] : memory_->neighbours) {
    const std::uint64_t beats = neighbour.arena.header().beats.load(std::memory_order_relaxed);
    if (std::exchange(beats_seen_[peer], beats) != beats) liveness_.heard(peer);
  }
}

}  // namespace mccl::engine
