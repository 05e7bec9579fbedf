// This process's heart, and what it hears of the others': neighbours see each other's beats in the
// memory that they share, the others are sent a word.
#pragma once

#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/rank.h"
#include "engine/peers/liveness.h"
#include "engine/peers/peers.h"
#include "node/neighbour.h"

namespace mccl::engine {

/// Used under the engine's progress lock.
class Heart {
 public:
  /// `silence`: of a peer, until it is given up. `peers` outlives it.
  Heart(Peers& peers, std::shared_ptr<const node::SharedMemory> memory, Clock::duration silence);

  /// How long a peer may be silent until it is given up.
  Clock::duration silence() const { return silence_; }
  /// Whether something has come from the peer of late.
  bool hears(WorldRank peer) const { return liveness_.hears(peer); }

  Clock::time_point next_beat() const { return liveness_.next_beat(); }
  /// Beats. The peers that have been silent for too long, each told once; they are given up, and
  /// learn it if they still listen. Whatever has come in so far was reported as heard.
  struct Silent {
    WorldRank peer;
    std::string reason;
  };
  std::vector<Silent> beat(Clock::time_point now);

  /// Something came from the peer.
  void heard(WorldRank peer) {
    if (!memory_->neighbour(peer)) liveness_.heard(peer);
  }
  void be_patient_with(WorldRank peer) { liveness_.be_patient_with(peer); }
  /// The peer is lost.
  void forget(WorldRank peer) { liveness_.forget(peer); }

 private:
  void listen_to_neighbours();

  Peers& peers_;
  const std::shared_ptr<const node::SharedMemory> memory_;
  const Clock::duration silence_;
  Liveness liveness_;
  ByRank<WorldRank, std::uint64_t> beats_seen_;  // of neighbours
};

}  // namespace mccl::engine
