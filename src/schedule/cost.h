// Predicts the cost of an algorithm with a model of few parameters.
#pragma once

#include <cstddef>

#include "schedule/choose.h"

namespace mccl::schedule {

struct Estimate {
  double seconds = 0;
  double steps = 0;  ///< Approximate number of steps of the busiest rank.
};

/// Estimates one call in a series of calls without pauses. Apart from in_place, uses only values
/// that are equal on all ranks: ignores the rank and, for an all_to_all that is not even, the
/// counts. Such an all_to_all is estimated as if every pair exchanged one chunk. Requires can().
Estimate estimate(Algorithm algorithm, const Problem& problem, std::size_t element_bytes,
                  const Facts& facts);

}  // namespace mccl::schedule
