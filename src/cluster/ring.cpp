#include "cluster/ring.h"

#include <fmt/format.h>

#include <algorithm>
#include <bitset>
#include <functional>

#include "mccl/error.h"

namespace mccl::cluster {
namespace {

using Vertices = std::bitset<kMostRingHosts>;
/// Holds, for each host, the set of its neighbours.
using Graph = std::vector<Vertices>;

/// Returns the graph of all pairs whose capacity is at least `least`, in Mbit/s.
Graph graph_of(const Capacities& capacities, double least) {
  Graph graph(static_cast<std::size_t>(capacities.size()));
  for (int a = 0; a < capacities.size(); ++a)
    for (int b = 0; b < capacities.size(); ++b)
      if (a != b && capacities.between(a, b) > 0 && capacities.between(a, b) >= least)
        graph[static_cast<std::size_t>(a)].set(static_cast<std::size_t>(b));
  return graph;
}

/// Searches for the cyclic order of all hosts that lacks the fewest cables, by bounded
/// backtracking. Extends a path of hosts at its end: tries first the hosts with a cable to the end,
/// and then the other hosts. In both groups, the hosts with the fewest neighbours off the path come
/// first. Backtracks if least_missing() shows that the path cannot lead to a better order than
/// best_.
class Search {
 public:
  /// Finds only orders that lack fewer than `limit` cables.
  Search(const Graph& graph, std::size_t limit) : graph_(graph), fewest_(limit) {
    for (std::size_t v = 0; v < graph.size(); ++v) free_.set(v);
  }

  void run() {
    // If the search from one host exceeds its step limit, a search from another host often
    // succeeds.
    for (std::size_t start = 0; start < graph_.size(); ++start) {
      steps_ = kMostRingSteps / static_cast<int>(graph_.size());
      visit(start, 0);
      if (steps_ > 0 || fewest_ == 0) {
        exhausted_ = true;
        return;
      }
    }
  }

  const std::vector<int>& order() const { return best_; }
  /// True if the search was complete: no order lacks fewer cables than order(), or than the limit
  /// if order() is empty. False if the search gave up.
  bool exhausted() const { return exhausted_; }

 private:
  void visit(std::size_t v, std::size_t missing) {
    path_.push_back(static_cast<int>(v));
    free_.reset(v);
    extend(v, missing);
    free_.set(v);
    path_.pop_back();
  }

  void extend(std::size_t end, std::size_t missing) {
    if (--steps_ <= 0) return;
    const auto start = static_cast<std::size_t>(path_.front());
    if (free_.none()) {
      if (!graph_[end].test(start)) ++missing;
      if (missing >= fewest_) return;
      fewest_ = missing;
      best_ = path_;
      return;
    }
    if (missing + least_missing(start, end) >= fewest_) return;
    std::vector<std::pair<std::size_t, std::size_t>> next;
    for (std::size_t v = 0; v < graph_.size(); ++v) {
      const bool joined = graph_[end].test(v);
      if (!free_.test(v) || (!joined && missing + 1 >= fewest_)) continue;
      next.emplace_back((graph_[v] & free_).count() + (joined ? 0 : kMostRingHosts), v);
    }
    std::ranges::sort(next);
    for (const auto& [rank, v] : next) {
      const std::size_t now = missing + (graph_[end].test(v) ? 0 : 1);
      if (steps_ <= 0 || now >= fewest_) return;
      visit(v, now);
    }
  }

  /// Returns a lower bound on the number of further cables that are missing in any ring that begins
  /// with path_. Every host off the path needs two neighbours among the hosts off the path and the
  /// two ends of the path. Each end needs one neighbour off the path. A cable serves two hosts, so
  /// the bound is half the number of missing neighbours.
  std::size_t least_missing(std::size_t start, std::size_t end) const {
    Vertices open = free_;
    open.set(start).set(end);
    std::size_t lacking = (graph_[start] & free_).none() + (graph_[end] & free_).none();
    for (std::size_t v = 0; v < graph_.size(); ++v)
      if (free_.test(v)) lacking += 2 - std::min<std::size_t>(2, (graph_[v] & open).count());
    return (lacking + 1) / 2;
  }

  const Graph& graph_;
  Vertices free_;  ///< Hosts that are not on the path.
  std::vector<int> path_;
  std::vector<int> best_;
  std::size_t fewest_;
  int steps_ = 0;
  bool exhausted_ = false;
};

/// Returns the distinct non-zero capacities in descending order.
std::vector<double> levels_of(const Capacities& capacities) {
  std::vector<double> levels;
  for (int a = 0; a < capacities.size(); ++a)
    for (int b = 0; b < a; ++b)
      if (capacities.between(a, b) > 0) levels.push_back(capacities.between(a, b));
  std::ranges::sort(levels, std::greater());
  levels.erase(std::unique(levels.begin(), levels.end()), levels.end());
  return levels;
}

/// Fills in `missing` and `fewest` of an answer without a ring.
void find_missing(const Graph& graph, RingAnswer& answer) {
  Search search(graph, graph.size() + 1);
  search.run();
  answer.fewest = search.exhausted();
  const std::vector<int>& order = search.order();
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto [a, b] = std::minmax(order[i], order[(i + 1) % order.size()]);
    if (!graph[static_cast<std::size_t>(a)].test(static_cast<std::size_t>(b)))
      answer.missing.emplace_back(a, b);
  }
  std::ranges::sort(answer.missing);
}

/// Rotates and reverses the ring so that it begins with host 0 and continues with the lower of its
/// two neighbours.
std::vector<int> in_normal_form(std::vector<int> order) {
  std::rotate(order.begin(), std::ranges::find(order, 0), order.end());
  if (order.size() > 2 && order.back() < order[1]) std::reverse(order.begin() + 1, order.end());
  return order;
}

}  // namespace

RingAnswer best_ring(const Capacities& capacities) {
  if (capacities.size() > kMostRingHosts) {
    throw InvalidArgument(
        fmt::format("{} hosts are too many for the search for a ring; the limit is {}",
                    capacities.size(), kMostRingHosts));
  }
  RingAnswer answer;
  if (capacities.size() == 1) answer.order = {0};
  if (capacities.size() == 2) {
    answer.slowest = capacities.between(0, 1);
    if (answer.slowest > 0) answer.order = {0, 1};
    if (answer.order.empty()) answer.missing = {{0, 1}};
  }
  if (capacities.size() < 3) return answer;
  const std::vector<double> levels = levels_of(capacities);
  // Binary search for the highest capacity at which a ring exists. It is valid because a lower
  // required capacity only adds pairs, so a ring of a higher level also exists at each lower level.
  std::size_t good = levels.size();
  for (std::size_t begin = 0, end = levels.size(); begin < end;) {
    const std::size_t middle = begin + (end - begin) / 2;
    const Graph graph = graph_of(capacities, levels[middle]);
    Search search(graph, 1);
    search.run();
    if (search.order().empty()) {
      // A later search uses a lower capacity, and its graph contains this whole graph. If the later
      // search fails too, its result therefore replaces this one.
      answer.proved = search.exhausted();
      begin = middle + 1;
      continue;
    }
    good = end = middle;
    answer.order = in_normal_form(search.order());
  }
  if (good < levels.size()) {
    answer.slowest = levels[good];
  } else {
    find_missing(graph_of(capacities, 0), answer);
  }
  return answer;
}

std::vector<Pair> missing_of_mesh(const Capacities& capacities) {
  std::vector<Pair> missing;
  for (int a = 0; a < capacities.size(); ++a)
    for (int b = a + 1; b < capacities.size(); ++b)
      if (capacities.between(a, b) <= 0) missing.emplace_back(a, b);
  return missing;
}

}  // namespace mccl::cluster
