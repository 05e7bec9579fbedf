#include "engine/write_choice.h"

#include <algorithm>
#include <limits>

namespace mccl::engine {

WriteChoice::Way WriteChoice::next(Clock::time_point now) {
  if (trials_left_ == 0 && now >= next_trial_) {
    trials_left_ = kTrialWrites;
    best_.fill(std::numeric_limits<double>::infinity());
  }
  if (trials_left_ == 0) return way_;
  return trials_left_ % 2 == 0 ? Way::through_cache : Way::past_cache;
}

void WriteChoice::took(Way way, std::size_t bytes, double seconds, Clock::time_point now) {
  if (trials_left_ == 0) return;
  // The best, because whatever else happens makes a write longer.
  best(way) = std::min(best(way), seconds / static_cast<double>(bytes));
  if (--trials_left_ > 0) return;
  const bool worthwhile = best(Way::through_cache) > kWorthwhile * best(Way::past_cache);
  way_ = worthwhile ? Way::past_cache : Way::through_cache;
  next_trial_ = now + kBetweenTrials;
}

}  // namespace mccl::engine
