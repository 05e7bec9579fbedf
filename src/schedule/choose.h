// The choice of algorithm and chunk by a cost model, from facts that all ranks share, so that all
// choose alike.
#pragma once

#include <cstddef>
#include <optional>

#include "schedule/schedule.h"

namespace mccl::schedule {

/// What the model knows of a group. Equal on all ranks.
struct Facts {
  double latency_s = 15e-6;                        ///< One message of no bytes, end to end.
  double bytes_per_s = 2e9;                        ///< One link, one direction.
  double reduce_bytes_per_s = 8e9;                 ///< Arithmetic per rank.
  std::size_t chunk_bytes = std::size_t{4} << 20;  ///< Upper bound of a message.
  std::size_t small_bytes =
      65536;  ///< all_reduce below this goes direct (unless the group is large).
  std::optional<Algorithm> forced = {};  ///< Used wherever it can do the problem.
};

struct Choice {
  Algorithm algorithm = Algorithm::direct;
  std::size_t chunk = 1;  ///< Elements.
  double predicted_s = 0;
};

/// Considers every algorithm that can do the problem. `problem.chunk` is ignored; for all_to_all
/// only what all ranks know (size) is used.
Choice choose(const Problem& problem, std::size_t element_bytes, const Facts& facts);

/// Predicted seconds.
double cost(Algorithm algorithm, const Problem& problem, std::size_t element_bytes,
            const Facts& facts);

}  // namespace mccl::schedule
