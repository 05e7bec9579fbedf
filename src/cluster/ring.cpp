#include "cluster/ring.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "cluster/cycle.h"
#include "mccl/error.h"

namespace mccl::cluster {
namespace {

/// Pairs of at least this capacity.
Graph graph_of(const Capacities& capacities, double least) {
  Graph graph(static_cast<std::size_t>(capacities.size()));
  for (int a = 0; a < capacities.size(); ++a)
    for (int b = 0; b < capacities.size(); ++b)
      if (a != b && capacities.between(a, b) > 0 && capacities.between(a, b) >= least)
        graph[static_cast<std::size_t>(a)].set(static_cast<std::size_t>(b));
  return graph;
}

/// All that there are, the largest first.
std::vector<double> levels_of(const Capacities& capacities) {
  std::vector<double> levels;
  for (int a = 0; a < capacities.size(); ++a)
    for (int b = 0; b < a; ++b)
      if (capacities.between(a, b) > 0) levels.push_back(capacities.between(a, b));
  std::ranges::sort(levels, std::greater());
  levels.erase(std::unique(levels.begin(), levels.end()), levels.end());
  return levels;
}

/// Of two hosts, whom one cable makes a ring.
RingAnswer ring_of_two(const Capacities& capacities) {
  RingAnswer answer;
  answer.slowest = capacities.between(0, 1);
  if (answer.slowest > 0) {
    answer.order = {0, 1};
  } else {
    answer.missing = {{0, 1}};
  }
  return answer;
}

/// No fewer cables can be missing: every host needs two, and one to go on to.
int fewest_missing(const Graph& graph) {
  std::size_t lacking = 0;
  for (const Vertices& neighbours : graph)
    lacking += 2 - std::min<std::size_t>(2, neighbours.count());
  const int without_next = static_cast<int>(graph.size()) - most_steps(graph);
  return std::max({1, static_cast<int>((lacking + 1) / 2), without_next});
}

/// A vertex more that all others are joined to stands for a cable that is missing between its two
/// neighbours on the cycle.
void find_missing(const Graph& graph, Patience& patience, RingAnswer& answer) {
  const auto size = static_cast<int>(graph.size());
  for (int more = fewest_missing(graph); more <= size; ++more) {
    Graph wider = graph;
    wider.resize(graph.size() + static_cast<std::size_t>(more));
    for (int extra = size; extra < size + more; ++extra) {
      for (int v = 0; v < size; ++v) {
        wider[static_cast<std::size_t>(extra)].set(static_cast<std::size_t>(v));
        wider[static_cast<std::size_t>(v)].set(static_cast<std::size_t>(extra));
      }
    }
    const Cycle cycle = find_cycle(wider, patience);
    answer.fewest = answer.fewest && cycle.proved;
    if (cycle.order.empty()) continue;
    const std::size_t length = cycle.order.size();
    for (std::size_t i = 0; i < length; ++i) {
      if (cycle.order[i] < size) continue;
      const auto [a, b] =
          std::minmax(cycle.order[(i + length - 1) % length], cycle.order[(i + 1) % length]);
      answer.missing.emplace_back(a, b);
    }
    std::ranges::sort(answer.missing);
    return;
  }
}

/// Always begins with the first host, and goes on with the lower of its neighbours.
std::vector<int> in_normal_form(std::vector<int> order) {
  std::rotate(order.begin(), std::ranges::find(order, 0), order.end());
  if (order.size() > 2 && order.back() < order[1]) std::reverse(order.begin() + 1, order.end());
  return order;
}

}  // namespace

void Capacities::add(int a, int b, double mbit) {
  values_[place(a, b)] += mbit;
  values_[place(b, a)] += mbit;
}

RingAnswer best_ring(const Capacities& capacities) {
  if (capacities.size() > kMostRingHosts) {
    throw InvalidArgument(
        fmt::format("{} hosts are too many to look for a ring among them; there "
                    "may be {}",
                    capacities.size(), kMostRingHosts));
  }
  if (capacities.size() == 2) return ring_of_two(capacities);
  RingAnswer answer;
  if (capacities.size() == 1) {
    answer.order = {0};
    return answer;
  }
  Patience patience;
  const std::vector<double> levels = levels_of(capacities);
  // With less capacity asked for, there are more pairs: once there is a ring, there stays one.
  std::size_t good = levels.size();
  for (std::size_t begin = 0, end = levels.size(); begin < end;) {
    const std::size_t middle = begin + (end - begin) / 2;
    const Cycle cycle = find_cycle(graph_of(capacities, levels[middle]), patience);
    if (cycle.order.empty()) {
      // Each time among more pairs than before: what holds of these holds of those.
      answer.proved = cycle.proved;
      begin = middle + 1;
      continue;
    }
    good = end = middle;
    answer.order = in_normal_form(cycle.order);
  }
  if (good < levels.size()) {
    answer.slowest = levels[good];
  } else {
    find_missing(graph_of(capacities, 0), patience, answer);
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
