#include "engine/peers/liveness.h"

#include <algorithm>

namespace mccl::engine {

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
