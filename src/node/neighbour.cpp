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
    // The range cannot be mapped, so the neighbour cannot reuse it.
  }
}

}  // namespace mccl::node
