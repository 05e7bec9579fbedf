#include "support/verifier/verify.h"

#include <fmt/format.h>

#include <optional>
#include <vector>

#include "support/verifier/defect.h"
#include "support/verifier/exchange.h"
#include "support/verifier/simulation.h"

namespace mccl::schedule {
namespace {

/// Compares the outputs with the expected results.
class Results {
 public:
  Results(std::span<const Problem> problems, const Simulation& simulation)
      : problems_(problems), simulation_(simulation) {}

  void check() {
    for (const Problem& p : problems_) check_results(p);
    if (problems_[0].collective == Collective::all_reduce) check_agreement();
  }

 private:
  /// Checks `count` elements of the output, which must hold elements from `element` on. They come
  /// from rank `source`; without it, they are reductions over all ranks.
  void expect(const Problem& p, std::size_t offset, std::size_t count, std::optional<int> source,
              std::size_t element) {
    simulation_.read_output(p.rank, offset, count, runs_);
    for (const Memory::Run& run : runs_) {
      check_run(p, offset, run.value, source, element);
      offset += run.count;
      element += run.count;
    }
  }

  void check_run(const Problem& p, std::size_t offset, const Value& value,
                 std::optional<int> source, std::size_t element) const {
    const auto wrong = [&](const std::string& what) {
      throw Defect{fmt::format("rank {}: output[{}] {}", p.rank, offset, what)};
    };
    if (value.expression == Expressions::kNothing) wrong("is never written");
    if (value.element != element) {
      wrong(fmt::format("holds element {}, not element {}", value.element, element));
    }
    if (source) {
      if (value.expression != simulation_.expressions().leaf(*source)) {
        wrong(fmt::format("does not hold what rank {} gave", *source));
      }
      return;
    }
    const int found = simulation_.expressions().contributions(value.expression);
    if (found != p.size) wrong(fmt::format("holds {} contributions out of {}", found, p.size));
    const bool nothing_to_do = p.size == 1 && p.in_place;
    if (!value.completed && !nothing_to_do) wrong("was never completed");
  }

  void check_results(const Problem& p) {
    const bool at_root = p.rank == p.root;
    switch (p.collective) {
      case Collective::all_reduce:
        return expect(p, 0, p.count, {}, 0);
      case Collective::reduce:
        if (at_root) expect(p, 0, p.count, {}, 0);
        return;
      case Collective::reduce_scatter:
        return expect(p, 0, p.counts[p.rank], {}, displacement(p.counts, p.rank));
      case Collective::broadcast:
        return expect(p, 0, p.count, p.root, 0);
      case Collective::scatter:
        return expect(p, 0, p.counts[p.rank], p.root, displacement(p.counts, p.rank));
      case Collective::gather:
        if (at_root) expect_gathered(p);
        return;
      case Collective::all_gather:
        return expect_gathered(p);
      case Collective::all_to_all:
        return expect_exchanged(p);
      case Collective::barrier:
      case Collective::send:
      case Collective::recv:
        break;
    }
  }

  void expect_gathered(const Problem& p) {
    for (int r = 0; r < p.size; ++r) expect(p, displacement(p.counts, r), p.counts[r], r, 0);
  }

  void expect_exchanged(const Problem& p) {
    for (int r = 0; r < p.size; ++r) {
      expect(p, displacement(p.recv_counts, r), p.recv_counts[r], r,
             displacement(problems_[r].counts, p.rank));
    }
  }

  /// Every rank of an all_reduce holds the same expressions as rank 0.
  void check_agreement() {
    Runs first;
    Runs other;
    const std::size_t count = problems_[0].count;
    simulation_.read_output(0, 0, count, first);
    for (std::size_t r = 1; r < problems_.size(); ++r) {
      simulation_.read_output(static_cast<int>(r), 0, count, other);
      std::size_t offset = 0;
      zip(first, other, [&](std::size_t n, const Value& a, const Value& b) {
        if (a.expression != b.expression) {
          throw Defect{fmt::format("output[{}] is added in another order on rank {} than on rank 0",
                                   offset, r)};
        }
        offset += n;
      });
    }
  }

  std::span<const Problem> problems_;
  const Simulation& simulation_;
  Runs runs_;
};

/// Checks a barrier: when a rank leaves, messages must have shown that all ranks have arrived.
void check_arrivals(std::span<const Problem> problems, std::span<const Schedule> schedules,
                    const Exchange& exchange, std::span<const std::uint32_t> order) {
  const std::size_t size = problems.size();
  std::vector<std::vector<bool>> heard(exchange.steps(), std::vector<bool>(size, false));
  for (std::uint32_t n = 0; n < heard.size(); ++n) heard[n][exchange.rank_of(n)] = true;
  const auto tell = [&](std::uint32_t from, std::uint32_t to) {
    for (std::size_t r = 0; r < size; ++r) heard[to][r] = heard[to][r] || heard[from][r];
  };
  for (const std::uint32_t event : order) {
    const std::uint32_t receive = exchange.partner(event);
    exchange.for_each_successor(event, [&](std::uint32_t later) { tell(event, later); });
    if (receive == Exchange::kNone) continue;
    tell(event, receive);
    exchange.for_each_successor(receive, [&](std::uint32_t later) { tell(receive, later); });
  }
  for (int rank = 0; rank < static_cast<int>(size); ++rank) {
    for (int other = 0; other < static_cast<int>(size); ++other) {
      bool known = other == rank;
      for (std::size_t i = 0; i < schedules[rank].steps.size(); ++i) {
        known = known || heard[exchange.number(rank, i)][other];
      }
      if (known) continue;
      throw Defect{
          fmt::format("rank {} may leave the barrier before rank {} has come", rank, other)};
    }
  }
}

bool allows_reading(const Schedule& schedule) {
  return schedule.readable.input || schedule.readable.output;
}

/// Checks that all ranks describe the same call.
void check_problems(std::span<const Problem> problems, std::span<const Schedule> schedules) {
  if (problems.empty() || problems.size() != schedules.size()) {
    throw Defect{fmt::format("{} problems for {} schedules", problems.size(), schedules.size())};
  }
  const Problem& first = problems[0];
  for (std::size_t r = 0; r < problems.size(); ++r) {
    Problem like = problems[r];
    like.rank = first.rank;
    like.in_place = first.in_place;
    if (first.collective == Collective::all_to_all) {
      like.counts = first.counts;
      like.recv_counts = first.recv_counts;
    }
    if (problems[r].rank != static_cast<int>(r) || !(like == first) ||
        problems[r].size != static_cast<int>(problems.size())) {
      throw Defect{fmt::format("problem {} is not that of rank {} of the same call", r, r)};
    }
  }
}

}  // namespace

std::string verify(std::span<const Problem> problems, std::span<const Schedule> schedules) {
  try {
    check_problems(problems, schedules);
    for (std::size_t r = 0; r < problems.size(); ++r) check_steps(problems[r], schedules[r]);
    const Exchange exchange(problems, schedules);
    const std::vector<std::uint32_t> order = exchange.order();
    if (problems[0].collective == Collective::barrier) {
      check_arrivals(problems, schedules, exchange, order);
      return {};
    }
    for (const Reading reading : {Reading::in_window, Reading::in_place}) {
      if (reading == Reading::in_place && !std::ranges::any_of(schedules, allows_reading)) break;
      Simulation simulation(problems, schedules, exchange, reading);
      simulation.run(order);
      Results(problems, simulation).check();
    }
  } catch (const Defect& defect) {
    return defect.text;
  }
  return {};
}

}  // namespace mccl::schedule
