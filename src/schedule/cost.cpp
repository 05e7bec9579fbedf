#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
#include <utility>
#include <vector>

#include "schedule/algorithm_table.h"
#include "schedule/cable_map.h"
#include "schedule/choose.h"
#include "schedule/layout.h"
#include "schedule/step_times.h"

namespace mccl::schedule {
namespace {

/// A simulation (walk()) covers at most kMostPieces pieces of a transfer, because each further
/// piece adds only its time on the bottleneck. With fewer pieces, the phases of a pipeline would
/// wait for latencies in the simulation. In a group of more than 16 ranks, fewer pieces suffice to
/// keep the links busy: kPiecesOfAllRanks divided by the number of ranks, but at least one.
constexpr std::size_t kMostPieces = 4;
constexpr std::size_t kPiecesOfAllRanks = 64;
/// Number of pieces in a Sample (the reduced problem that is simulated) of an algorithm that moves
/// all data through the window: one piece per slot of a one-shot schedule.
constexpr std::size_t kWindowPieces = kOneShotSlots;

/// Factor by which copies take longer if data flow through the window from or to a root, because
/// ranks wait for each other's pieces. It does not apply to gather, in which ranks hardly wait.
/// Among the collectives with a root, only reduce can use more than one window algorithm. Halving
/// or doubling kFlow changes 16 of 1274 choices of an algorithm.
constexpr double kFlow = 1.2;

bool is_rooted(Collective collective) {
  using enum Collective;
  return one_of(collective, broadcast, reduce, gather, scatter);
}

/// A smaller problem of the same kind, whose schedules are quick to build and to simulate.
class Sample {
 public:
  Sample(const AlgorithmEntry& entry, const Problem& asked)
      : problem(asked),
        ranks_(static_cast<std::size_t>(asked.size)),
        window_(entry.window),
        in_parts_(asked.collective == Collective::all_reduce && (entry.in_parts || asked.coding)) {
    // in_place may differ between ranks. It affects only the memory traffic of algorithms that use
    // the window for all data, so it is cleared for all other algorithms.
    problem.in_place = problem.in_place && window_ == WindowUse::all;
    if (window_ == WindowUse::none) {
      problem.window = 0;
      problem.nodes.clear();
    }
    even_out();
    const std::size_t most =
        window_ == WindowUse::all ? most_through_window() : most_through_links();
    const std::size_t count = problem.counts.empty() ? problem.count : problem.counts[0];
    if (count <= most) return;
    times = static_cast<double>(count) / static_cast<double>(most);
    if (problem.counts.empty()) problem.count = most;
    problem.counts.assign(problem.counts.size(), most);
    problem.recv_counts.assign(problem.recv_counts.size(), most);
    if (window_ == WindowUse::none) take_unit();
  }

  Problem problem;
  double times = 1;   ///< Number of pieces of the real problem, divided by that of the sample.
  double longer = 1;  ///< Length of the largest part, divided by the mean length of the parts.
  double scale = 1;   ///< Size of a piece in the real problem, divided by its size in the sample.

 private:
  /// Makes all parts equal, so that every rank has the same problem. Replaces each count by the
  /// mean of all counts, or by the chunk if each rank knows only its own counts. `longer` keeps the
  /// ratio of the largest count to the mean.
  void even_out() {
    if (problem.counts.empty()) {
      // Rounds the count up so that divided() makes parts of equal size.
      const std::size_t part = divide_up(problem.count, ranks_);
      const std::size_t unit = part < kSmallPart ? 2 : kPartUnit;
      if (in_parts_ && window_ == WindowUse::none)
        problem.count = divide_up(part, unit) * unit * ranks_;
      return;
    }
    const bool exchanges = problem.collective == Collective::all_to_all;
    const std::size_t mean =
        exchanges && !problem.even ? problem.chunk : divide_up(total(problem.counts), ranks_);
    if (!exchanges && mean > 0)
      longer = static_cast<double>(std::ranges::max(problem.counts)) / static_cast<double>(mean);
    problem.counts.assign(ranks_, mean);
    if (exchanges) problem.recv_counts = problem.counts;
  }

  /// Returns the maximum number of elements of the sample's buffer, or of one rank's part if the
  /// problem has counts.
  std::size_t most_through_window() const {
    using enum Collective;
    const std::size_t piece = std::min(problem.chunk, std::max<std::size_t>(1, problem.window / 2));
    const bool shares_slot = one_of(problem.collective, reduce_scatter, scatter, all_to_all);
    return divide_up(kWindowPieces * piece, shares_slot ? ranks_ : 1);
  }

  std::size_t most_through_links() const {
    const std::size_t pieces = std::clamp(kPiecesOfAllRanks / ranks_, std::size_t{1}, kMostPieces);
    return pieces * problem.chunk * (in_parts_ ? ranks_ : 1);
  }

  /// Changes the chunk to kUnit elements. Problems that differ only in the size of their pieces
  /// then have the same schedules, so one schedule serves all of them.
  void take_unit() {
    scale = static_cast<double>(problem.chunk) / static_cast<double>(kUnit);
    const auto to_unit = [&](std::size_t& count) { count = count / problem.chunk * kUnit; };
    to_unit(problem.count);
    std::ranges::for_each(problem.counts, to_unit);
    std::ranges::for_each(problem.recv_counts, to_unit);
    problem.chunk = kUnit;
  }

  /// Number of elements of a piece of the sample. Such a piece fills whole cache lines, and whole
  /// blocks of each codec.
  static constexpr std::size_t kUnit = 4096;
  /// Parts of at least kSmallPart elements are rounded up to a multiple of kPartUnit elements.
  static constexpr std::size_t kSmallPart = 1024;
  static constexpr std::size_t kPartUnit = 128;
  const std::size_t ranks_;
  const WindowUse window_;
  const bool in_parts_;
};

/// Returns a rank that can represent all others if all ranks do the same: the first rank of the
/// largest node, or of the last one if several nodes are equally large.
int typical_rank(const Problem& p) {
  const std::vector<std::vector<int>> nodes = all_nodes(p);
  const std::vector<int>* largest = &nodes[0];
  for (const std::vector<int>& node : nodes) {
    if (node.size() >= largest->size()) largest = &node;
  }
  return largest->front();
}

/// The work that one rank does through the window.
struct WindowWork {
  double copied = 0;    ///< Bytes copied or added.
  double pieces = 0;    ///< Number of arrive steps; 0 if no data uses the window.
  double meetings = 0;  ///< Number of times that the ranks wait for each other.
};

WindowWork work_in_window(const Schedule& schedule, const StepTimes& times) {
  WindowWork use;
  std::uint32_t arrivals = 0, met = 0;
  for (const Step& step : schedule.steps) {
    use.copied += times.copied(step);
    if (step.kind == StepKind::arrive) ++arrivals;
    if (step.kind != StepKind::await || step.mark <= met) continue;
    use.meetings += 1;
    met = std::max(arrivals, step.mark);
  }
  use.pieces = schedule.window_count > 0 ? arrivals : 0;
  return use;
}

/// Estimates a schedule that uses only the window and in which all ranks wait for each other. Uses
/// the work of the root, if there is one, because no other rank takes longer.
double meeting_seconds(const Sample& sample, const WindowWork& root, const StepTimes& times) {
  Handled handled = times.buffers(sample.problem.root);
  handled.copied = sample.times * root.copied;
  return sample.times * (root.meetings * times.meeting() + root.pieces * times.piece()) +
         times.handling(handled);
}

/// Estimates a schedule that uses only the window and in which data flow from or to a root. The
/// root or the other ranks may be some calls ahead, so ranks wait for each other only when slots
/// are reused.
double flow_seconds(const Sample& sample, const WindowWork& root, const WindowWork& other,
                    const StepTimes& times, double ranks_per_core) {
  const Problem& p = sample.problem;
  const double ranks = p.size;
  const auto mean = [&](double of_root, double of_other) {
    return (of_root + (ranks - 1) * of_other) / ranks;
  };
  const Handled at_root = times.buffers(p.root);
  const Handled elsewhere = times.buffers((p.root + 1) % p.size);
  // If ranks share a core, those without work leave the core to the root, which then copies at full
  // speed. The division therefore undoes the factor ranks_per_core in handling().
  const double copied = std::max(root.copied / ranks_per_core, mean(root.copied, other.copied));
  const double waits = p.collective == Collective::gather ? 1 : kFlow;
  const double meetings = std::min(root.meetings, other.meetings);
  return times.flow() + sample.times * (meetings * times.meeting() + root.pieces * times.piece()) +
         times.handling({.copied = sample.times * copied * waits,
                         .of_memory = mean(at_root.of_memory, elsewhere.of_memory),
                         .held = mean(at_root.held, elsewhere.held)});
}

/// Adds copies of the largest node until the number of nodes is a power of two. In exchanges
/// between nodes, all ranks then do the same, so that the schedule of one rank is enough for an
/// estimate. Simulating all ranks would take seconds in a large group.
Problem with_even_nodes(Problem problem) {
  const std::vector<std::vector<int>> nodes = all_nodes(problem);
  const std::size_t largest =
      std::ranges::max(nodes, {}, [](const auto& node) { return node.size(); }).size();
  const std::size_t missing = std::bit_ceil(nodes.size()) - nodes.size();
  const int first = std::ranges::max(problem.nodes) + 1;
  const auto ranks = static_cast<std::size_t>(problem.size) + missing * largest;
  for (std::size_t i = 0; i < missing * largest; ++i)
    problem.nodes.push_back(first + static_cast<int>(i / largest));
  problem.size = static_cast<int>(ranks);
  if (!problem.counts.empty()) {
    const std::size_t mean = divide_up(total(problem.counts), problem.counts.size());
    problem.counts.resize(ranks, mean);
  }
  return problem;
}

bool needs_relays(const std::vector<Schedule>& schedules, const CableMap& cables) {
  for (std::size_t rank = 0; rank < schedules.size(); ++rank) {
    for (const Step& step : schedules[rank].steps) {
      if (step.kind == StepKind::send && !cables.joins(static_cast<int>(rank), step.peer))
        return true;
    }
  }
  return false;
}

}  // namespace

Estimator::Estimator(Algorithm algorithm, const Problem& problem, std::size_t element_bytes,
                     const Facts& facts)
    : algorithm_(algorithm), asked_(problem), element_bytes_(element_bytes), facts_(facts) {
  asked_.rank = 0;
  const AlgorithmEntry& entry = entry_of(algorithm);
  const bool may_be_even =
      entry.window == WindowUse::inside_nodes && !is_rooted(problem.collective) && !facts.cables;
  if (!may_be_even || entry.is_symmetric(problem)) return;
  Problem even = with_even_nodes(problem);
  if (entry.can(even)) asked_ = std::move(even);
}

const std::vector<Schedule>& Estimator::built(const Problem& problem, std::span<const int> ranks) {
  if (!schedules_.empty() && schedules_.size() == ranks.size() && problem == built_for_)
    return schedules_;
  built_for_ = problem;
  schedules_.clear();
  Problem of_rank = problem;
  for (const int rank : ranks) {
    of_rank.rank = rank;
    schedules_.push_back(build(algorithm_, of_rank));
  }
  return schedules_;
}

Estimate Estimator::at(std::size_t chunk) {
  const AlgorithmEntry& entry = entry_of(algorithm_);
  const bool is_in_window = entry.window == WindowUse::all;
  asked_.chunk = chunk;
  const Sample sample(entry, asked_);
  const Problem& p = sample.problem;
  StepTimes times(asked_, element_bytes_, facts_, sample.scale);
  Estimate found;
  if (is_in_window) {
    const std::vector<Schedule>& schedules = built(p, std::array{p.root, (p.root + 1) % p.size});
    const WindowWork root = work_in_window(schedules[0], times);
    const WindowWork other = work_in_window(schedules[1], times);
    found.seconds = is_rooted(p.collective) && root.meetings != other.meetings
                        ? flow_seconds(sample, root, other, times, facts_.ranks_per_core)
                        : meeting_seconds(sample, root, times);
  } else {
    Walked walked;
    const auto walk_ranks = [&](std::span<const int> ranks) {
      const std::vector<Schedule>& schedules = built(p, ranks);
      if (p.window > 0)
        times.set_window_rate(work_in_window(schedules[0], times).copied * sample.times);
      walked = walk(schedules, p, times, facts_.cables.get());
    };
    if (!is_rooted(p.collective) && !facts_.cables && entry.is_symmetric && entry.is_symmetric(p))
      walk_ranks(std::array{typical_rank(p)});
    if (!walked.complete) {
      std::vector<int> ranks(static_cast<std::size_t>(p.size));
      std::iota(ranks.begin(), ranks.end(), 0);
      walk_ranks(ranks);
    }
    double keeping = 0;
    for (const Schedule& each : schedules_) keeping = std::max(keeping, times.keeping(each));
    found.seconds = walked.seconds + (sample.times - 1) * walked.busiest + sample.times * keeping;
    found.needs_relays = facts_.cables && needs_relays(schedules_, *facts_.cables);
  }
  for (const Schedule& each : schedules_) {
    const auto steps = std::ranges::count_if(
        each.steps, [&](const Step& step) { return is_in_window || !is_window(step.kind); });
    found.steps = std::max(found.steps, static_cast<double>(steps) * sample.times * sample.longer);
  }
  return found;
}

double cost(Algorithm algorithm, const Problem& problem, std::size_t element_bytes,
            const Facts& facts) {
  return Estimator(algorithm, problem, element_bytes, facts).at(problem.chunk).seconds;
}

}  // namespace mccl::schedule
