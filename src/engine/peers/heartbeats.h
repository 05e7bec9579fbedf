// Sends this process's heartbeats and observes those of its peers. Neighbours (ranks of one node)
// read each other's heartbeat counters in the memory that they share; other peers send each other
// control messages. The end of a neighbour's process is noticed even if another process, such as a
// child of a fork, keeps its connections open.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/rank.h"
#include "engine/peers/peers.h"
#include "node/neighbour.h"

namespace mccl::engine {

/// Measures the silence of each peer. Used under the engine's progress lock.
class Liveness {
 public:
  /// Number of heartbeats that a process sends in one interval. The interval is the silence after
  /// which a peer is declared lost. A period is the time from one heartbeat to the next. A peer may
  /// have sent its last heartbeat up to a period before it stopped, and this process checks once in
  /// a period. So the peer is declared lost an interval after its stop, plus or minus one period.
  static constexpr int kBeats = 40;
  /// Additional periods of silence allowed for a peer whose messages pass through relays.
  static constexpr int kMorePeriods = 16;
  /// Maximum number of periods that one call of beat() adds to the silence of a peer, even if more
  /// time has passed since the last call, because this process may itself have been stopped
  /// meanwhile. hears() is false for a peer that has been silent for this many periods.
  static constexpr int kMostPeriods = 8;

  Liveness(int size, Clock::duration interval)
      : period_(interval / kBeats),
        limit_(interval - period_ / 2),
        peers_(static_cast<std::size_t>(size)) {}

  /// Starts to watch a peer that may still be connecting to other ranks. Until something arrives
  /// from the peer, it may be silent for the additional time `meeting`.
  void expect(WorldRank rank, Clock::duration meeting) {
    peers_[rank].state = State::silent;
    peers_[rank].meeting = meeting;
  }
  /// Called when any message arrives from the peer. A peer is not watched before the first call of
  /// heard() or expect().
  void heard(WorldRank rank) {
    peers_[rank].state = State::heard;
    peers_[rank].meeting = {};
  }
  /// True if something has arrived from the peer within the last kMostPeriods periods.
  bool hears(WorldRank rank) const {
    const Peer& peer = peers_[rank];
    return peer.state == State::heard ||
           (peer.state == State::silent && peer.meeting == Clock::duration::zero() &&
            peer.silence < kMostPeriods * period_);
  }
  /// True if the peer has been heard before, and nothing has arrived from it for kMostPeriods
  /// periods.
  bool has_fallen_silent(WorldRank rank) const {
    const Peer& peer = peers_[rank];
    return peer.state == State::silent && peer.meeting == Clock::duration::zero() &&
           peer.silence >= kMostPeriods * period_;
  }
  /// Called for a peer whose messages pass through relays. The peer may be silent for kMorePeriods
  /// periods longer than other peers.
  void be_patient_with(WorldRank rank) { peers_[rank].patience = kMorePeriods * period_; }
  /// Stops watching the peer.
  void forget(WorldRank rank) { peers_[rank].state = State::unknown; }

  Clock::time_point next_beat() const { return next_beat_; }

  /// Called when a heartbeat is due, after heard() was called for everything that has arrived.
  /// Returns the peers that have now been silent for the whole interval, each once.
  std::vector<WorldRank> beat(Clock::time_point now);

 private:
  enum class State : std::uint8_t {
    unknown,
    heard,   ///< Something has arrived since the last call of beat().
    silent,  ///< Nothing has arrived for the time `silence`.
  };
  struct Peer {
    State state = State::unknown;
    Clock::duration silence{};
    Clock::duration patience{};  ///< Allowed silence in addition to the interval.
    Clock::duration meeting{};   ///< See expect().
  };

  Clock::duration period_;
  /// Silence after which a peer is lost: the interval minus half a period. Silence is checked once
  /// in a period. Half a period is subtracted so that the peer is lost at the check that is nearest
  /// to the end of the interval.
  Clock::duration limit_;
  ByRank<WorldRank, Peer> peers_;
  Clock::time_point last_beat_{};
  Clock::time_point next_beat_{};
};

/// Sends this rank's heartbeats and tracks those of all peers. Used under the engine's progress
/// lock.
class Heartbeats : private Liveness {
 public:
  /// `silence`: the silence after which a peer is given up. `peers` must outlive this object.
  Heartbeats(Peers& peers, std::shared_ptr<const node::SharedMemory> memory,
             Clock::duration silence);

  using Liveness::be_patient_with;
  using Liveness::expect;
  using Liveness::forget;
  using Liveness::has_fallen_silent;
  using Liveness::hears;
  using Liveness::next_beat;

  Clock::duration silence() const { return silence_; }
  struct Silent {
    WorldRank peer;
    std::string reason;
  };
  /// Sends a heartbeat to each peer. Gives up the peers that have been silent for too long, sends
  /// them a goodbye in case they can still receive it, and returns them, each once. Before this
  /// call, heard() must have been called for all messages that have arrived.
  std::vector<Silent> beat(Clock::time_point now);

  /// Called when a message arrives from the peer.
  void heard(WorldRank peer) {
    if (!memory_->neighbour(peer)) Liveness::heard(peer);
  }

 private:
  void listen_to_neighbours();
  /// Adds the neighbours whose processes have ended, but whose connections have not.
  void look_for_ended(Clock::time_point now, std::vector<Silent>& silent);

  Peers& peers_;
  const std::shared_ptr<const node::SharedMemory> memory_;
  const Clock::duration silence_;
  /// The neighbours' heartbeat counters at the last check.
  ByRank<WorldRank, std::uint64_t> beats_seen_;
  /// Times at which the processes of neighbours were found to have ended. Their connections usually
  /// end soon, and then report what the neighbours sent last.
  std::map<WorldRank, Clock::time_point> ended_at_;
};

}  // namespace mccl::engine
