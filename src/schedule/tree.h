// Trees that data climbs and descends piece by piece: the binomial tree and the chain.
#pragma once

#include <vector>

#include "schedule/schedule.h"

namespace mccl::schedule {

struct Tree {
  int parent = -1;            ///< None for the root.
  std::vector<int> children;  ///< In the order in which they are ready to be reduced.
};

/// all_reduce, broadcast and reduce over the tree of which `tree` is this rank's view.
Schedule build_on_tree(const Problem& problem, const Tree& tree);

}  // namespace mccl::schedule
