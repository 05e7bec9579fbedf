// Finds which ranks of a group share a node.
#pragma once

#include <vector>

#include "schedule/schedule.h"

namespace mccl::schedule {

/// The ranks of the node of `rank`, in rank order and including `rank`.
std::vector<int> node_members(const Problem& problem, int rank);

/// The nodes of a group, ordered by their first rank. Each is the list of its ranks.
std::vector<std::vector<int>> all_nodes(const Problem& problem);

/// True if all ranks are on one node and its window is large enough for every algorithm.
bool shares_window(const Problem& problem);

}  // namespace mccl::schedule
