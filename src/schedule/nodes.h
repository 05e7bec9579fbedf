// Which ranks of a group share a node.
#pragma once

#include <vector>

#include "schedule/schedule.h"

namespace mccl::schedule {

/// The ranks of the node of `rank`, in rank order, `rank` among them.
std::vector<int> node_members(const Problem& problem, int rank);

/// The nodes of a group, each the list of its ranks, ordered by their first rank.
std::vector<std::vector<int>> all_nodes(const Problem& problem);

/// Whether all ranks are on one node and its window has room for every algorithm.
bool shares_window(const Problem& problem);

}  // namespace mccl::schedule
