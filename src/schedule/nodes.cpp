#include "schedule/nodes.h"

#include <algorithm>

namespace mccl::schedule {

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
