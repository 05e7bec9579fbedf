// Sends this process's heartbeats and observes those of its peers. Neighbours read each other's
// beats in shared memory; other peers exchange messages.
#pragma once

#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/rank.h"
#include "engine/peers/liveness.h"
#include "engine/peers/peers.h"
#include "node/neighbour.h"

namespace mccl::engine {

/// Sends this rank's heartbeats and tracks those of all peers. Used under the engine's progress
/// lock.
class Heart {
 public:
  /// `silence`: how long a peer may be silent before it is given up. `peers` must outlive this
  /// object.
  Heart(Peers& peers, std::shared_ptr<const node::SharedMemory> memory, Clock::duration silence);

  /// How long a peer may be silent until it is given up.
  Clock::duration silence() const { return silence_; }
  /// True if something has arrived from the peer recently.
  bool hears(WorldRank peer) const { return liveness_.hears(peer); }

  Clock::time_point next_beat() const { return liveness_.next_beat(); }
  /// Sends a heartbeat. Returns the peers that have been silent for too long, each once. They are
  /// given up, and are sent a goodbye in case they still listen. All messages that have arrived
  /// must have been reported to heard() before.
  struct Silent {
    WorldRank peer;
    std::string reason;
  };
  std::vector<Silent> beat(Clock::time_point now);

  /// Called when a message arrives from the peer.
  void heard(WorldRank peer) {
    if (!memory_->neighbour(peer)) liveness_.heard(peer);
  }
  void expect(WorldRank peer, Clock::duration meeting) { liveness_.expect(peer, meeting); }
  void be_patient_with(WorldRank peer) { liveness_.be_patient_with(peer); }
  /// Called when the peer is lost.
  void forget(WorldRank peer) { liveness_.forget(peer); }

 private:
  void listen_to_neighbours();

  Peers& peers_;
  const std::shared_ptr<const node::SharedMemory> memory_;
  const Clock::duration silence_;
  Liveness liveness_;
  ByRank<WorldRank, std::uint64_t> beats_seen_;  // the neighbours' beat counters at the last check
};

}  // namespace mccl::engine
