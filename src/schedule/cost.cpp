#include "schedule/cost.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "schedule/cost_terms.h"
#include "schedule/layout.h"
#include "schedule/nodes.h"

namespace mccl::schedule {
namespace {

bool shares_node(const Problem& p) {
  return !p.nodes.empty() &&
         std::all_of(p.nodes.begin(), p.nodes.end(), [&](int node) { return node == p.nodes[0]; });
}

/// Returns the problem that one column solves. A column consists of the ranks with the same index
/// in each node. Together they exchange 1/`columns` of the data.
Problem column_of(const Problem& p, const std::vector<std::vector<int>>& nodes,
                  std::size_t columns) {
  Problem column = p;
  column.size = static_cast<int>(nodes.size());
  column.count = p.count / columns;
  if (p.counts.empty()) return column;
  column.counts.clear();
  for (const std::vector<int>& node : nodes) {
    std::size_t count = 0;
    for (const int rank : node) count += p.counts[static_cast<std::size_t>(rank)];
    column.counts.push_back(count / columns);
  }
  return column;
}

}  // namespace

CallSize::CallSize(const Problem& p, std::size_t element_bytes)
    : ranks(p.size),
      others(p.size - 1),
      rounds(std::bit_width(static_cast<unsigned>(p.size - 1))),
      power_of_two(std::has_single_bit(static_cast<unsigned>(p.size))),
      apart(p.in_place ? 0 : 1) {
  const auto element = static_cast<double>(element_bytes);
  chunk = static_cast<double>(p.chunk) * element;
  window = static_cast<double>(p.window) * element;
  const bool exchanges = p.collective == Collective::all_to_all && !p.even;
  const bool in_parts = !p.counts.empty() && !exchanges;
  bytes = element * static_cast<double>(in_parts ? total(p.counts) : p.count);
  if (exchanges) bytes = chunk * ranks;
  part = bytes / ranks;
  largest = in_parts
                ? element * static_cast<double>(*std::max_element(p.counts.begin(), p.counts.end()))
                : part;
}

double CallSize::pieces(double of) const { return of > 0 ? std::ceil(of / chunk) : 0; }

Estimate estimate(Algorithm algorithm, const Problem& p, std::size_t element_bytes,
                  const Facts& facts) {
  if (facts.cables && p.size > 1) {
    const CableCost cables(algorithm, p, element_bytes, facts);
    Estimate found = estimate(algorithm, p, element_bytes, cables.free());
    found.seconds += cables.seconds(p.chunk);
    return found;
  }
  const CallSize size(p, element_bytes);
  const LinkTerms link(size, facts, shares_node(p));
  const WindowTerms window(size, facts);
  if (p.size == 1) return {size.bytes * link.per_byte(), size.pieces(size.bytes)};
  switch (algorithm) {
    case Algorithm::direct:
      return p.coding ? coded_estimate(p, size, link, element_bytes)
                      : direct_estimate(p.collective, size, link);
    case Algorithm::ring:
      return ring_estimate(p.collective, size, link, 1);
    case Algorithm::ring_both:
      return ring_estimate(p.collective, size, link, 2);
    case Algorithm::recursive_doubling:
      return recursive_doubling_estimate(p.collective, size, link);
    case Algorithm::binomial_tree:
      return binomial_tree_estimate(p.collective, size, link);
    case Algorithm::chain:
      return chain_estimate(p.collective, size, link);
    case Algorithm::pairwise:
      return pairwise_estimate(p.collective, size, link);
    case Algorithm::dissemination:
      return dissemination_estimate(size, link);
    case Algorithm::one_shot:
      return one_shot_estimate(p.collective, size, window);
    case Algorithm::two_shot:
      return two_shot_estimate(size, window);
    case Algorithm::cable_tree:
      return cable_tree_estimate(p.collective, size, link, p.tree);
    case Algorithm::hierarchical: {
      const auto nodes = all_nodes(p);
      std::size_t columns = nodes[0].size();
      for (const auto& node : nodes) columns = std::min(columns, node.size());
      if (p.coding) {
        const Problem between = column_of(p, nodes, columns);
        const CallSize part(between, element_bytes);
        const LinkTerms columns_link(part, facts, false);
        Estimate found = coded_estimate(between, part, columns_link, element_bytes);
        found.seconds +=
            p.collective == Collective::all_reduce
                ? inside_nodes_estimate(size, window, static_cast<double>(columns))
                : sums_inside_nodes_estimate(size, window, static_cast<double>(nodes.size()),
                                             static_cast<double>(columns));
        return found;
      }
      return hierarchical_estimate(p.collective, size, link, window,
                                   static_cast<double>(nodes.size()), static_cast<double>(columns));
    }
  }
  return {};
}

double cost(Algorithm algorithm, const Problem& problem, std::size_t element_bytes,
            const Facts& facts) {
  return estimate(algorithm, problem, element_bytes, facts).seconds;
}

}  // namespace mccl::schedule
