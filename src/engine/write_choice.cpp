#include "engine/write_choice.h"

#include <algorithm>

namespace mccl::engine {

WriteChoice::Way WriteChoice::next(Clock::time_point now) {
  if (trials_left_ == 0 && now >= next_trial_) {
    trials_left_ = kTrialWrites;
    samples_ = {};
  }
  if (trials_left_ == 0) return way_;
  return trials_left_ % 2 == 0 ? Way::through_cache : Way::past_cache;
}

void WriteChoice::took(Way way, std::size_t bytes, double seconds, Clock::time_point now) {
  if (trials_left_ == 0) return;
  samples(way).add(seconds / static_cast<double>(bytes));
  if (--trials_left_ > 0) return;
  const double through = samples(Way::through_cache).median();
  const bool worthwhile = through > kWorthwhile * samples(Way::past_cache).median();
  way_ = worthwhile ? Way::past_cache : Way::through_cache;
  next_trial_ = now + between_trials_;
  between_trials_ = std::min(2 * between_trials_, kBetweenTrials);
}

/// Not the mean: now and then something else delays a write. Not the best: places that nobody has
/// read yet are faster to write than they ever are again.
double WriteChoice::Samples::median() {
  const auto middle = taken.begin() + count / 2;
  std::nth_element(taken.begin(), middle, taken.begin() + count);
  return *middle;
}

}  // namespace mccl::engine
