#include "engine/collectives/write_choice.h"

#include <algorithm>
#include <bit>
#include <numeric>

namespace mccl::engine {

WriteChoice::Way WriteChoice::next(Clock::time_point now) {
  if (fresh_left_ > 0) return Way::through_cache;
  const bool due = now >= next_trial_ || (slow_writes_ >= kSlowWrites && now >= least_next_trial_);
  if (trials_left_ == 0 && due) {
    trials_left_ = kTrialWrites;
    samples_ = {};
  }
  if (trials_left_ == 0) return way_;
  // A trial does not strictly alternate between the two ways of writing. Otherwise, if calls write
  // for two readers in turn, all writes for one reader would use the same way. The Thue-Morse
  // sequence, which is used instead, has no period.
  const auto left = static_cast<unsigned>(trials_left_ - 1);
  return std::popcount(left) % 2 == 0 ? Way::through_cache : Way::past_cache;
}

void WriteChoice::took(Way way, std::size_t bytes, double seconds, Clock::time_point now) {
  fresh_left_ -= std::min(fresh_left_, bytes);
  const double sample = seconds / static_cast<double>(bytes);
  if (trials_left_ == 0) return watch(sample);
  samples(way).add(sample);
  if (--trials_left_ == 0) decide(now);
}

void WriteChoice::decide(Clock::time_point now) {
  const double through = samples(Way::through_cache).mean();
  const double past = samples(Way::past_cache).mean();
  way_ = through > kWorthwhile * past ? Way::past_cache : Way::through_cache;
  usual_ = way_ == Way::past_cache ? past : through;
  slow_writes_ = 0;
  next_trial_ = now + kBetweenTrials;
  least_next_trial_ = now + kLeastBetweenTrials;
}

void WriteChoice::watch(double sample) {
  slow_writes_ = usual_ > 0 && sample > kSlow * usual_ ? slow_writes_ + 1 : 0;
}

double WriteChoice::Samples::mean() {
  const auto end = taken.begin() + static_cast<std::ptrdiff_t>(count - kOutliers);
  std::nth_element(taken.begin(), end, taken.begin() + static_cast<std::ptrdiff_t>(count));
  return std::accumulate(taken.begin(), end, 0.0) / static_cast<double>(count - kOutliers);
}

}  // namespace mccl::engine
