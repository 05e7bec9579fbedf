// A barrier in log2(size) rounds. In round k a rank sends to the rank 2^k above it. The message
// means that the sender, and every rank that it has heard from, has arrived.
#include <optional>

#include "schedule/algorithm_table.h"
#include "schedule/builder.h"

namespace mccl::schedule {
namespace {

bool can_dissemination(const Problem& p) { return p.collective == Collective::barrier; }

Schedule build_dissemination(const Problem& p) {
  ScheduleBuilder builder(p);
  const Region nothing = output({});
  std::optional<std::uint32_t> heard;  // the last receive, which ends after all receives before it
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

}  // namespace

const AlgorithmEntry kDissemination{.name = "dissemination",
                                    .can = can_dissemination,
                                    .build = build_dissemination,
                                    .is_symmetric = always};

}  // namespace mccl::schedule
