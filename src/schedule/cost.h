// What an algorithm costs, by a model of few numbers.
#pragma once

#include <cstddef>

#include "schedule/choose.h"

namespace mccl::schedule {

struct Estimate {
  double seconds = 0;
  double steps = 0;  ///< Of the busiest rank, about.
};

/// Looks at nothing that ranks do not share but for in_place: not at the rank, nor, for all_to_all,
/// at counts unless they are even; then it is estimated as if every pair exchanged one chunk. Calls
/// are taken to follow one another without a pause. Requires can().
Estimate estimate(Algorithm algorithm, const Problem& problem, std::size_t element_bytes,
                  const Facts& facts);

}  // namespace mccl::schedule
