#include "support/verifier/verify_cables.h"

#include <fmt/format.h>

#include "support/verifier/describe.h"

namespace mccl::schedule {

std::string beyond_cables(std::span<const Schedule> schedules, const CableMap& cables) {
  for (std::size_t rank = 0; rank < schedules.size(); ++rank) {
    for (const Step& step : schedules[rank].steps) {
      if (!is_message(step.kind) || cables.joins(static_cast<int>(rank), step.peer)) continue;
      return fmt::format("rank {}: {}, to which no cable leads", rank, describe(step));
    }
  }
  return {};
}

}  // namespace mccl::schedule
