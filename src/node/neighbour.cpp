#include "node/neighbour.h"

#include "mccl/error.h"

namespace mccl::node {

void let_go_of(const Neighbour& neighbour, const RangePlace& place) {
  if (place.bytes == 0) return;
  try {
    static_cast<void>(neighbour.arena.map(place));
  } catch (const CorruptionError&) {
    throw;
  } catch (const std::exception&) {
    // Mapping the range and unmapping it again is what releases it. If it cannot be mapped here,
    // it stays in use. The neighbour then cannot reuse this memory, but no data are at risk.
  }
}

}  // namespace mccl::node
