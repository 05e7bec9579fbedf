// Schedules on trees in which data moves up and down piece by piece: the binomial tree, the chain
// and the tree of cables.
#pragma once

#include <vector>

#include "schedule/schedule.h"

namespace mccl::schedule {

struct Tree {
  int parent = -1;  ///< Parent of this rank; -1 for the root.
  /// Children of this rank, in the order in which their data is ready to be reduced.
  std::vector<int> children;
};

/// Builds all_reduce, broadcast or reduce. `tree` is this rank's view of the tree.
Schedule build_on_tree(const Problem& problem, const Tree& tree);

}  // namespace mccl::schedule
