#include "schedule/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string_view>

#include "mccl/error.h"

namespace mccl::schedule {
namespace {

bool has_counts(Collective collective) {
  using enum Collective;
  return one_of(collective, all_gather, gather, scatter, reduce_scatter, all_to_all);
}

/// Gives input and output separate addresses. If they are `aliased`, puts the smaller one into the
/// larger one instead, `displacement` elements from its beginning.
Layout lay(std::size_t input, std::size_t output, bool aliased, std::size_t displacement = 0) {
  Layout layout;
  layout.input_count = input;
  layout.output_count = output;
  layout.aliased = aliased;
  if (!aliased) {
    layout.output_base = input;
    layout.scratch_base = input + output;
    return layout;
  }
  (input < output ? layout.input_base : layout.output_base) = displacement;
  layout.scratch_base = std::max(input, output);
  return layout;
}

}  // namespace

std::size_t total(const std::vector<std::size_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

std::size_t displacement(const std::vector<std::size_t>& counts, int rank) {
  return std::accumulate(counts.begin(), counts.begin() + rank, std::size_t{0});
}

bool is_reduction(Collective collective) {
  using enum Collective;
  return one_of(collective, all_reduce, reduce, reduce_scatter);
}

Layout layout_of(const Problem& p) {
  const bool at_root = p.rank == p.root;
  switch (p.collective) {
    case Collective::all_reduce:
      return lay(p.count, p.count, p.in_place);
    case Collective::broadcast:
      return lay(0, p.count, false);
    case Collective::reduce:
      return lay(p.count, at_root ? p.count : 0, p.in_place && at_root);
    case Collective::all_gather:
      return lay(p.counts[p.rank], total(p.counts), p.in_place, displacement(p.counts, p.rank));
    case Collective::gather:
      return lay(p.counts[p.rank], at_root ? total(p.counts) : 0, p.in_place && at_root,
                 displacement(p.counts, p.rank));
    case Collective::scatter:
      return lay(at_root ? total(p.counts) : 0, p.counts[p.rank], p.in_place && at_root,
                 displacement(p.counts, p.rank));
    case Collective::reduce_scatter:
      return lay(total(p.counts), p.counts[p.rank], p.in_place, displacement(p.counts, p.rank));
    case Collective::all_to_all:
      return lay(total(p.counts), total(p.recv_counts), false);
    case Collective::barrier:
    case Collective::send:
    case Collective::recv:
      break;
  }
  return {};
}

void check(const Problem& p) {
  if (p.size < 1 || p.rank < 0 || p.rank >= p.size || p.root < 0 || p.root >= p.size) {
    throw InvalidArgument(fmt::format(
        "schedule: rank {} and root {} must be ranks of a group of {}", p.rank, p.root, p.size));
  }
  if (p.chunk == 0) throw InvalidArgument("schedule: a chunk must hold at least one element");
  const auto require_one_each = [&](const auto& list, std::string_view what) {
    if (list.size() == static_cast<std::size_t>(p.size)) return;
    throw InvalidArgument(
        fmt::format("schedule: a group of {} ranks needs one entry per rank in {}, but "
                    "there are {}",
                    p.size, what, list.size()));
  };
  if (!p.nodes.empty()) require_one_each(p.nodes, "nodes");
  if (has_counts(p.collective)) require_one_each(p.counts, "counts");
  if (p.collective != Collective::all_to_all) return;
  require_one_each(p.recv_counts, "counts to receive");
  if (p.counts[p.rank] != p.recv_counts[p.rank]) {
    throw InvalidArgument(
        fmt::format("schedule: rank {} sends itself {} elements but expects {}: make the two equal",
                    p.rank, p.counts[p.rank], p.recv_counts[p.rank]));
  }
}

std::vector<int> node_members(const Problem& p, int rank) {
  if (p.nodes.empty()) return {rank};
  std::vector<int> members;
  for (int r = 0; r < p.size; ++r) {
    if (p.nodes[r] == p.nodes[rank]) members.push_back(r);
  }
  return members;
}

std::vector<std::vector<int>> all_nodes(const Problem& p) {
  std::vector<std::vector<int>> nodes;
  std::vector<int> place_of;  // indexed by node number
  for (int r = 0; r < p.size; ++r) {
    if (p.nodes.empty()) {
      nodes.push_back({r});
      continue;
    }
    const auto number = static_cast<std::size_t>(p.nodes[r]);
    if (place_of.size() <= number) place_of.resize(number + 1, -1);
    if (place_of[number] < 0) {
      place_of[number] = static_cast<int>(nodes.size());
      nodes.emplace_back();
    }
    nodes[place_of[number]].push_back(r);
  }
  return nodes;
}

bool shares_window(const Problem& p) {
  return p.size > 1 && p.window >= 2 * static_cast<std::size_t>(p.size) && !p.nodes.empty() &&
         std::all_of(p.nodes.begin(), p.nodes.end(), [&](int n) { return n == p.nodes[0]; });
}

}  // namespace mccl::schedule
