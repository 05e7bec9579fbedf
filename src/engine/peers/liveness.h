// Whether the peers are alive: every rank sends every other a heartbeat at regular beats, and who
// has not been heard for a whole interval is taken for dead. It finds what no kernel tells: a
// process that is stopped, a host that has vanished, a cable that is cut.
//
// Silence is counted from beat to beat, and at most a fifth of the interval at a time, so that a
// process which was itself stopped for an hour does not take that hour for the others' silence.
#pragma once

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "base/rank.h"

namespace mccl::engine {

/// Used under the engine's progress lock.
class Liveness {
 public:
  /// Beats in an interval. A peer that stops may have beaten up to a period before, and this
  /// process looks once in a period: the peer is lost an interval after its stop, give or take a
  /// period.
  static constexpr int kBeats = 40;
  /// Periods beyond the interval for a peer whose words others pass on.
  static constexpr int kMorePeriods = 16;
  /// Periods of silence that one beat counts at most.
  static constexpr int kMostPeriods = 8;

  Liveness(int size, Clock::duration interval)
      : period_(interval / kBeats),
        limit_(interval - period_ / 2),
        peers_(static_cast<std::size_t>(size)) {}

  /// Something came from the peer. Before the first time it is not missed: it may still be meeting
  /// the others.
  void heard(WorldRank rank) { peers_[rank].state = State::heard; }
  /// Whether something has come from it of late.
  bool hears(WorldRank rank) const {
    const Peer& peer = peers_[rank];
    return peer.state == State::heard ||
           (peer.state == State::silent && peer.silence < kMostPeriods * period_);
  }
  /// Its words come through others: it is missed that much later than they are.
  void be_patient_with(WorldRank rank) { peers_[rank].patience = kMorePeriods * period_; }
  /// It is not to be missed any more.
  void forget(WorldRank rank) { peers_[rank].state = State::unknown; }

  Clock::time_point next_beat() const { return next_beat_; }

  /// A beat is due, and what has come in so far was reported as heard. The peers that have been
  /// silent for the interval now, each told once.
  std::vector<WorldRank> beat(Clock::time_point now);

 private:
  enum class State : std::uint8_t {
    unknown,
    heard,   ///< Since the last beat.
    silent,  ///< Since then: for `silence`.
  };
  struct Peer {
    State state = State::unknown;
    Clock::duration silence{};
    Clock::duration patience{};  ///< Beyond the interval.
  };

  Clock::duration period_;
  Clock::duration limit_;  ///< Of silence, to the nearest beat.
  ByRank<WorldRank, Peer> peers_;
  Clock::time_point last_beat_{};
  Clock::time_point next_beat_{};
};

}  // namespace mccl::engine
