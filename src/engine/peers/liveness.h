// Whether the peers are alive: every rank sends every other a heartbeat at regular beats, and who
// has not been heard for a whole interval is taken for dead. It finds what no kernel tells: a
// process that is stopped, a host that has vanished, a cable that is cut.
//
// Silence is counted in beats of this process and not by the clock, so that a process which was
// itself stopped for an hour does not take that hour for the others' silence.
#pragma once

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "base/rank.h"

namespace mccl::engine {

/// Used under the engine's progress lock.
class Liveness {
 public:
  /// Beats in an interval: a peer is lost at most a beat after the interval.
  static constexpr int kBeats = 5;
  /// Of one whose words others pass on.
  static constexpr int kMoreBeats = 2;

  Liveness(int size, Clock::duration interval)
      : period_(interval / kBeats),
        silent_beats_(static_cast<std::size_t>(size), kNeverHeard),
        patience_(static_cast<std::size_t>(size), 0) {}

  /// Something came from the peer. Before the first time it is not missed: it may still be meeting
  /// the others.
  void heard(WorldRank rank) { silent_beats_[rank] = 0; }
  /// Whether something has come from it of late.
  bool hears(WorldRank rank) const {
    return silent_beats_[rank] != kNeverHeard && silent_beats_[rank] <= 1;
  }
  /// Its words come through others: it is missed that much later than they are.
  void be_patient_with(WorldRank rank) { patience_[rank] = kMoreBeats; }
  /// It is not to be missed any more.
  void forget(WorldRank rank) { silent_beats_[rank] = kNeverHeard; }

  Clock::time_point next_beat() const { return next_beat_; }

  /// A beat is due, and what has come in so far was reported as heard. The peers that have been
  /// silent for the interval now, each told once.
  std::vector<WorldRank> beat(Clock::time_point now);

 private:
  static constexpr std::int32_t kNeverHeard = -1;

  Clock::duration period_;
  ByRank<WorldRank, std::int32_t> silent_beats_;  // since it was heard
  ByRank<WorldRank, std::int32_t> patience_;      // beats beyond the interval
  Clock::time_point next_beat_{};
};

}  // namespace mccl::engine
