// What the links of two ranks can do, measured by the two.
#pragma once

#include <memory>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/engine.h"

namespace mccl::native {

/// Of what is measured before the first call, for a peer that takes its time.
inline constexpr std::chrono::seconds kPatience{30};

using Pair = std::pair<int, int>;

struct PairFigures {
  double latency_s = 0;
  double bytes_per_s = 0;
};

/// The pairs in an order in which no two ranks wait for each other, and in which those that have no
/// rank in common measure at once. The same on all ranks.
std::vector<Pair> in_rounds(std::set<Pair> pairs);

/// By exchanges between the two, which both call it, with links of their own. The first has the
/// figures; the other gets none. `what` tells trials of one pair apart, on both alike.
PairFigures measure_pair(const std::shared_ptr<engine::Engine>& engine, const Pair& pair,
                         std::string_view what);

}  // namespace mccl::native
