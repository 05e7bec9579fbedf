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
    // No memory even for that: the neighbour loses a range, and nothing else.
  }
}

}  // namespace mccl::node
