// A barrier in log2(size) rounds: in round k a rank tells the one 2^k above it that it, and all
// that it has heard of, have arrived.
#include <optional>

#include "schedule/algorithms.h"
#include "schedule/builder.h"

namespace mccl::schedule {

Schedule build_dissemination(const Problem& p) {
  ScheduleBuilder builder(p);
  const Region nothing = output({});
  std::optional<std::uint32_t> heard;  // the last receive, which ends after those before it
  for (int distance = 1; distance < p.size; distance *= 2) {
    const std::uint32_t told = builder.send((p.rank + distance) % p.size, nothing);
    const std::uint32_t hears = builder.recv(wrap(p.rank - distance, p.size), nothing);
    if (heard) {
      builder.after(*heard, told);
      builder.after(*heard, hears);
    }
    heard = hears;
  }
  return builder.finish();
}

}  // namespace mccl::schedule
