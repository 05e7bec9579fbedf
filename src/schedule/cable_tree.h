// A tree whose edges are cables, viewed with any rank as the root.
#pragma once

#include <vector>

#include "schedule/tree.h"

namespace mccl::schedule {

class CableTree {
 public:
  /// `parents`: the parent of each rank, or -1 for the root. Requires that they form a tree.
  explicit CableTree(const std::vector<int>& parents);

  /// The view that `rank` has of the tree if `root` is the root.
  Tree view(int rank, int root) const;
  /// The rank that follows `from` on the route to `to`; -1 if `to` equals `from`.
  int next(int from, int to) const;
  /// The ranks of the subtree of `child`, including itself, as seen from its neighbour `parent`. In
  /// rank order.
  std::vector<int> behind(int child, int parent) const;
  const std::vector<int>& neighbours(int rank) const {
    return neighbours_[static_cast<std::size_t>(rank)];
  }

 private:
  std::vector<std::vector<int>> neighbours_;  ///< Indexed by rank.
};

}  // namespace mccl::schedule
