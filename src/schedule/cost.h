// Predicts the cost of an algorithm by walking its schedules.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "schedule/choose.h"

namespace mccl::schedule {

struct Estimate {
  double seconds = 0;
  /// Approximate number of steps of the busiest rank. If only a part of them use the window, the
  /// others are counted.
  double steps = 0;
  /// True if some ranks must pass on messages of others, because no cable joins the two ranks.
  bool needs_relays = false;
};

/// Estimates one call in a series of calls without pauses. Apart from in_place, uses only values
/// that are equal on all ranks: ignores the rank and, for an all_to_all that is not even, the
/// counts. Such an all_to_all is estimated as if every pair exchanged one chunk, and parts of
/// different sizes as if they were equal.
class Estimator {
 public:
  /// Requires can(). The facts must outlive this object.
  Estimator(Algorithm algorithm, const Problem& problem, std::size_t element_bytes,
            const Facts& facts);

  /// Estimates the call with this chunk in place of the problem's. Builds small schedules, which it
  /// keeps for other chunks.
  Estimate at(std::size_t chunk);

 private:
  const std::vector<Schedule>& built(const Problem& problem, std::span<const int> ranks);

  const Algorithm algorithm_;
  Problem asked_;
  const std::size_t element_bytes_;
  const Facts& facts_;
  std::vector<Schedule> schedules_;
  Problem built_for_;
};

}  // namespace mccl::schedule
