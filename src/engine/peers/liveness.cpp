#include "engine/peers/liveness.h"

namespace mccl::engine {

std::vector<WorldRank> Liveness::beat(Clock::time_point now) {
  next_beat_ = now + period_;
  std::vector<WorldRank> lost;
  for (WorldRank rank(0); rank < silent_beats_.end_rank(); ++rank) {
    std::int32_t& beats = silent_beats_[rank];
    // The beat that comes right after a word counts less than a period; so one more than kBeats.
    if (beats == kNeverHeard || ++beats <= kBeats + patience_[rank]) continue;
    beats = kNeverHeard;
    lost.push_back(rank);
  }
  return lost;
}

}  // namespace mccl::engine
