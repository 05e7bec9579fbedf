#include <fmt/format.h>

#include <iterator>

#include "mccl/error.h"
#include "schedule/algorithm_table.h"
#include "schedule/builder.h"

namespace mccl::schedule {
namespace {

/// Indexed by Algorithm.
constexpr const AlgorithmEntry* kEntries[] = {
    &kDirect,   &kRing,          &kRingBoth, &kRecursiveDoubling, &kBinomialTree, &kChain,
    &kPairwise, &kDissemination, &kOneShot,  &kTwoShot,           &kHierarchical, &kCableTree,
};
static_assert(std::size(kEntries) == kAlgorithmCount);

/// Builds the schedule for a group of one rank: a copy, or nothing if the call is in place.
Schedule build_alone(const Problem& p) {
  ScheduleBuilder builder(p);
  const Layout layout = layout_of(p);
  if (layout.input_count != 0) {
    const Extent all{0, layout.output_count};
    builder.copy_pieces(input(all), output(all), is_reduction(p.collective));
  }
  return builder.finish();
}

}  // namespace

const AlgorithmEntry& entry_of(Algorithm algorithm) {
  return *kEntries[static_cast<std::size_t>(algorithm)];
}

std::string_view name_of(Algorithm algorithm) { return entry_of(algorithm).name; }

bool can(Algorithm algorithm, const Problem& p) {
  using enum Collective;
  if (one_of(p.collective, send, recv)) return false;
  if (p.size < 2) return algorithm == Algorithm::direct;
  const AlgorithmEntry& entry = entry_of(algorithm);
  if (p.coding && !(entry.sums_blocks && one_of(p.collective, all_reduce, reduce_scatter)))
    return false;
  return entry.can(p);
}

Schedule build(Algorithm algorithm, const Problem& p) {
  check(p);
  if (!can(algorithm, p)) {
    throw InvalidArgument(
        fmt::format("schedule: the algorithm {} does not support this call among {} ranks",
                    name_of(algorithm), p.size));
  }
  return p.size == 1 ? build_alone(p) : entry_of(algorithm).build(p);
}

}  // namespace mccl::schedule
