// Measures the links between two ranks.
#pragma once

#include <memory>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/engine.h"

namespace mccl::native {

/// Time limit for measurements at the start of a job. It is generous, since a peer may be slow.
inline constexpr std::chrono::seconds kPatience{30};

using Pair = std::pair<int, int>;

struct PairFigures {
  double latency_s = 0;
  double bytes_per_s = 0;
};

/// Orders the pairs so that measuring them in turn cannot deadlock, and pairs without a common rank
/// can be measured at the same time. The result is the same on all ranks.
std::vector<Pair> in_rounds(std::set<Pair> pairs);

/// Measures the latency and rate between two ranks by messages, over links made for this purpose.
/// Both ranks must call it; only the result on the first rank is meaningful. `what` distinguishes
/// the measurements of one pair, and must be the same on both ranks.
PairFigures measure_pair(const std::shared_ptr<engine::Engine>& engine, const Pair& pair,
                         std::string_view what);

}  // namespace mccl::native
