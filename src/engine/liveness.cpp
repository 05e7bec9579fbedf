#include "engine/liveness.h"

namespace mccl::engine {

std::vector<int> Liveness::beat(Clock::time_point now) {
  next_beat_ = now + period_;
  std::vector<int> lost;
  for (std::size_t rank = 0; rank < silent_beats_.size(); ++rank) {
    std::int32_t& beats = silent_beats_[rank];
    // The beat that comes right after a word counts less than a period; so one more than kBeats.
    if (beats == kNeverHeard || ++beats <= kBeats) continue;
    beats = kNeverHeard;
    lost.push_back(static_cast<int>(rank));
  }
  return lost;
}

}  // namespace mccl::engine
