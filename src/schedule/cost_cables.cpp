// Estimates for cables that do not join all ranks. An estimate has two parts: the time in which the
// cables carry what the schedules send, and the algorithm's cost if bytes took no time.
#include <algorithm>
#include <bit>

#include "schedule/algorithms.h"
#include "schedule/cable_map.h"
#include "schedule/cost_terms.h"
#include "schedule/layout.h"

namespace mccl::schedule {
namespace {

/// Number of chunks per rank in a reduced problem. More would give the same traffic, only scaled.
constexpr std::size_t kPieces = 4;
constexpr double kFreeBytes = 1e18;  ///< Bytes/s at which bytes take practically no time.

/// Replaces values that differ between ranks: in an all_to_all that is not even, every pair is
/// assumed to exchange one chunk, as estimate() documents.
Problem as_all_know(Problem problem) {
  if (problem.collective == Collective::all_to_all && !problem.even) {
    problem.counts.assign(static_cast<std::size_t>(problem.size), problem.chunk);
    problem.recv_counts = problem.counts;
  }
  return problem;
}

/// A smaller version of the problem, whose schedules are quick to build, and the factor by which
/// the real problem is larger.
struct Reduced {
  explicit Reduced(const Problem& problem) : small(problem) {
    std::size_t largest = small.count;
    for (const std::size_t count : small.counts) largest = std::max(largest, count);
    const std::size_t wanted = small.chunk * kPieces * static_cast<std::size_t>(small.size);
    if (largest <= wanted) return;
    times = static_cast<double>(largest) / static_cast<double>(wanted);
    const auto shrink = [this](std::size_t count) {
      return static_cast<std::size_t>(static_cast<double>(count) / times);
    };
    small.count = shrink(small.count);
    for (std::size_t& count : small.counts) count = shrink(count);
    small.recv_counts = small.counts;
  }

  Problem small;
  double times = 1;
};

/// Returns how many pieces must pass one after another before every cable is busy.
double pieces_in_a_row(Algorithm algorithm, const Problem& p) {
  switch (algorithm) {
    case Algorithm::ring:
    case Algorithm::ring_both:
    case Algorithm::pairwise:
      return 2;
    case Algorithm::chain:
    case Algorithm::cable_tree:
      return p.size - 1;
    case Algorithm::recursive_doubling:
    case Algorithm::binomial_tree:
    case Algorithm::dissemination:
      return std::bit_width(static_cast<unsigned>(p.size - 1));
    default:
      return 1;
  }
}

Traffic traffic_of(Algorithm algorithm, const Problem& problem, std::size_t element_bytes) {
  Reduced reduced(problem);
  Traffic traffic;
  for (int rank = 0; rank < problem.size; ++rank) {
    reduced.small.rank = rank;
    for (const Step& step : build(algorithm, reduced.small).steps) {
      if (step.kind != StepKind::send) continue;
      traffic[{rank, step.peer}] +=
          reduced.times * static_cast<double>(byte_count(step.src, element_bytes, problem.coding));
    }
  }
  return traffic;
}

}  // namespace

CableCost::CableCost(Algorithm algorithm, const Problem& asked, std::size_t element_bytes,
                     const Facts& facts)
    : free_(facts),
      pieces_in_a_row_(pieces_in_a_row(algorithm, asked)),
      element_s_(static_cast<double>(element_bytes) / facts.cables->fastest_bytes_per_s()) {
  const Problem problem = as_all_know(asked);
  most_ = std::max(problem.count, total(problem.counts));
  const Traffic traffic = traffic_of(algorithm, problem, element_bytes);
  busiest_s_ = facts.cables->seconds(traffic);
  free_.cables = nullptr;
  free_.bytes_per_s = kFreeBytes;
  free_.latency_s = 0;
  for (const auto& [pair, bytes] : traffic) {
    free_.latency_s = std::max(free_.latency_s, facts.cables->latency_s(pair.first, pair.second));
    keeps_to_cables_ = keeps_to_cables_ && facts.cables->joins(pair.first, pair.second);
  }
  if (free_.latency_s == 0) free_.latency_s = facts.latency_s;  // No message takes a cable.
}

double CableCost::seconds(std::size_t chunk) const {
  return busiest_s_ + pieces_in_a_row_ * element_s_ * static_cast<double>(std::min(chunk, most_));
}

}  // namespace mccl::schedule
