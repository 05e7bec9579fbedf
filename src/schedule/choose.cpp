#include "schedule/choose.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <vector>

#include "schedule/algorithm_table.h"
#include "schedule/cable_map.h"
#include "schedule/layout.h"

namespace mccl::schedule {
namespace {

constexpr std::size_t kSmallestChunkBytes = std::size_t{64} << 10;
/// Sizes of pieces through a window, in bytes. kWindowPieceOfLargeSums applies to a one-shot
/// all_reduce of at least kLargeSum bytes, which reads its operands twice: when it publishes them
/// and when it adds them. If no cache holds all operands, smaller pieces are still in the core's
/// own cache when they are added.
constexpr std::size_t kWindowPieceBytes = std::size_t{128} << 10;
constexpr std::size_t kWindowPieceOfLargeSums = std::size_t{64} << 10;
constexpr std::size_t kLargeSum = std::size_t{8} << 20;
/// Maximum number of steps of a schedule that uses links. In a longer schedule, making and storing
/// the steps costs more time than finer pieces save.
constexpr double kMostSteps = 4096;
/// Maximum number of steps of a schedule through a window, whose steps per rank grow with the
/// number of ranks. A schedule of this length takes 60 MB.
constexpr double kMostWindowSteps = 5e5;
/// A later candidate is chosen only if its time is below this fraction of the best time, so the
/// first of several equal candidates is kept.
constexpr double kBetter = 0.999;
/// Larger chunks are not tried once the time with a chunk is more than this many times the best
/// time so far.
constexpr double kHopeless = 1.2;
/// A coded sum is worthwhile if it takes less than this fraction of the time of an exact sum.
constexpr double kWorthRounding = 0.9;
/// Maximum number of ranks of a group in which `direct`, where all ranks send to all others at the
/// same time, may be chosen without a comparison of predicted times.
constexpr int kSmallGroup = 8;
/// Maximum chunk of an uneven all_to_all, in bytes. Its chunk cannot depend on predicted times,
/// because the ranks do not know how much data other pairs exchange.
constexpr std::size_t kExchangeChunkBytes = std::size_t{1} << 20;

std::vector<std::size_t> chunks_to_consider(std::size_t element_bytes, const Facts& facts) {
  std::vector<std::size_t> chunks;
  const auto add = [&](std::size_t bytes) {
    chunks.push_back(std::max<std::size_t>(1, bytes / std::max<std::size_t>(1, element_bytes)));
  };
  for (std::size_t bytes = kSmallestChunkBytes; bytes < facts.chunk_bytes; bytes *= 2) {
    add(bytes);
    if (bytes > facts.chunk_bytes / 2) break;
  }
  add(facts.chunk_bytes);
  return chunks;
}

std::size_t window_chunk(const std::vector<std::size_t>& chunks, Algorithm algorithm,
                         const Problem& problem, std::size_t element_bytes) {
  const bool large_sum = algorithm == Algorithm::one_shot &&
                         problem.collective == Collective::all_reduce &&
                         problem.count * element_bytes >= kLargeSum;
  const std::size_t bytes = large_sum ? kWindowPieceOfLargeSums : kWindowPieceBytes;
  const std::size_t wanted = bytes / std::max<std::size_t>(1, element_bytes);
  for (const std::size_t chunk : chunks) {
    if (chunk >= wanted) return chunk;
  }
  return chunks.back();
}

Choice choose_exchange(Problem problem, std::size_t element_bytes, const Facts& facts) {
  Choice choice;
  choice.algorithm = problem.size <= kSmallGroup ? Algorithm::direct : Algorithm::pairwise;
  if (facts.forced && can(*facts.forced, problem)) choice.algorithm = *facts.forced;
  const std::size_t bytes = std::min(facts.chunk_bytes, kExchangeChunkBytes);
  choice.chunk = std::max<std::size_t>(1, bytes / std::max<std::size_t>(1, element_bytes));
  problem.chunk = choice.chunk;
  // Ignores the cables, because the counts may change with every call, and each estimate along
  // cables would simulate the schedules of all ranks.
  Facts without_ways = facts;
  without_ways.cables = nullptr;
  choice.predicted_s = cost(choice.algorithm, problem, element_bytes, without_ways);
  return choice;
}

/// Returns the algorithm to use if no predicted times need to be compared; otherwise nothing.
std::optional<Algorithm> settled(const Problem& problem, std::size_t element_bytes,
                                 const Facts& facts) {
  if (facts.forced && can(*facts.forced, problem)) return facts.forced;
  // The hierarchical algorithm is preferred, because it sums exactly inside the nodes and rounds
  // only between them.
  if (problem.coding && can(Algorithm::hierarchical, problem)) return Algorithm::hierarchical;
  if (!problem.nodes.empty() || facts.cables) return {};
  if (problem.collective == Collective::all_reduce && problem.size <= kSmallGroup &&
      problem.count < facts.small_bytes / std::max<std::size_t>(1, element_bytes)) {
    return Algorithm::direct;
  }
  return {};
}

/// True if a schedule through the window, with the largest pieces, has at most kMostWindowSteps
/// steps.
bool fits_through_window(const Problem& problem, std::size_t element_bytes, const Facts& facts) {
  const std::size_t chunk = facts.chunk_bytes / std::max<std::size_t>(1, element_bytes);
  const Algorithm longest =
      can(Algorithm::two_shot, problem) ? Algorithm::two_shot : Algorithm::one_shot;
  Estimator estimator(longest, problem, element_bytes, facts);
  return estimator.at(std::max<std::size_t>(1, chunk)).steps <= kMostWindowSteps;
}

/// A candidate (algorithm and chunk), and whether ranks must relay some of its messages.
struct RankedChoice {
  Choice choice;
  bool needs_relays = false;
};

/// Finds the best chunk for an algorithm. `is_only`: no other algorithm can be chosen.
RankedChoice best_of(Algorithm algorithm, bool is_only, const Problem& problem,
                     std::size_t element_bytes, const Facts& facts) {
  const std::vector<std::size_t> chunks = chunks_to_consider(element_bytes, facts);
  const bool fixed = entry_of(algorithm).window == WindowUse::all;
  Estimator estimator(algorithm, problem, element_bytes, facts);
  RankedChoice best{{algorithm, chunks.back(), std::numeric_limits<double>::infinity()}};
  for (const std::size_t chunk : chunks) {
    if (fixed && chunk < window_chunk(chunks, algorithm, problem, element_bytes)) continue;
    const Estimate found = estimator.at(chunk);
    best.needs_relays = found.needs_relays;
    const double most_steps = fixed ? kMostWindowSteps : kMostSteps;
    const bool may_be_longer = chunk == chunks.back() && (!fixed || is_only);
    if (found.steps > most_steps && !may_be_longer) continue;
    if (found.seconds < kBetter * best.choice.predicted_s) {
      best.choice = {algorithm, chunk, found.seconds};
    }
    // Stops if larger chunks cannot change the schedule, or are unlikely to make it faster.
    const bool holds_all = chunk >= std::max(problem.count, total(problem.counts));
    if (fixed || holds_all || found.seconds > kHopeless * best.choice.predicted_s) break;
  }
  return best;
}

std::vector<Algorithm> candidates_for(const Problem& problem, std::size_t element_bytes,
                                      const Facts& facts) {
  if (const auto only = settled(problem, element_bytes, facts)) return {*only};
  // If all ranks share a window, links through the same memory would only add copies, so algorithms
  // that use links are left out.
  const bool window_only =
      can(Algorithm::one_shot, problem) && fits_through_window(problem, element_bytes, facts);
  std::vector<Algorithm> candidates;
  for (int i = 0; i < kAlgorithmCount; ++i) {
    const auto algorithm = static_cast<Algorithm>(i);
    if (can(algorithm, problem) && (!window_only || entry_of(algorithm).window == WindowUse::all))
      candidates.push_back(algorithm);
  }
  return candidates;
}

}  // namespace

Problem placed(Problem problem, std::size_t element_bytes, const Facts& facts) {
  problem.nodes = facts.nodes;
  problem.window = facts.window_bytes / std::max<std::size_t>(1, element_bytes);
  if (facts.cables) {
    problem.ring = facts.cables->ring();
    problem.tree = facts.cables->tree();
  }
  return problem;
}

bool is_faster_coded(const Problem& problem, std::size_t element_bytes, const Facts& facts) {
  Problem exact = problem;
  exact.coding = {};
  return choose(problem, element_bytes, facts).predicted_s <
         kWorthRounding * choose(exact, element_bytes, facts).predicted_s;
}

Choice choose(const Problem& asked, std::size_t element_bytes, const Facts& facts) {
  Problem problem = placed(asked, element_bytes, facts);
  // in_place may differ between ranks, so the choice must not depend on it.
  problem.in_place = false;
  if (asked.collective == Collective::all_to_all && !asked.even) {
    return choose_exchange(problem, element_bytes, facts);
  }
  const std::vector<Algorithm> algorithms = candidates_for(problem, element_bytes, facts);
  std::vector<RankedChoice> candidates;
  candidates.reserve(algorithms.size());
  for (const Algorithm algorithm : algorithms)
    candidates.push_back(best_of(algorithm, algorithms.size() == 1, problem, element_bytes, facts));
  // If some algorithms send every message over a single cable, only these algorithms are
  // considered, because a relayed message occupies another rank and wakes one of its threads.
  const bool some_need_none = !std::ranges::all_of(candidates, &RankedChoice::needs_relays);
  if (some_need_none) std::erase_if(candidates, std::mem_fn(&RankedChoice::needs_relays));
  Choice best = candidates.front().choice;
  for (const RankedChoice& each : candidates) {
    if (each.choice.predicted_s < kBetter * best.predicted_s) best = each.choice;
  }
  problem.in_place = asked.in_place;
  problem.chunk = best.chunk;
  best.predicted_s = cost(best.algorithm, problem, element_bytes, facts);
  return best;
}

}  // namespace mccl::schedule
