// A tree of ranks that a cable each joins, seen from any of them as its root.
#pragma once

#include <vector>

#include "schedule/tree.h"

namespace mccl::schedule {

class CableTree {
 public:
  /// Of each rank the one above it; -1 for one rank. Requires that they are a tree.
  explicit CableTree(const std::vector<int>& parents);

  /// What `rank` sees of the tree when `root` is its root.
  Tree view(int rank, int root) const;
  /// The rank after `from` on the way to `to`.
  int next(int from, int to) const;
  /// The ranks behind `child`, itself among them, seen from `parent`, which it is joined to; in
  /// rank order.
  std::vector<int> behind(int child, int parent) const;
  const std::vector<int>& neighbours(int rank) const {
    return neighbours_[static_cast<std::size_t>(rank)];
  }

 private:
  std::vector<std::vector<int>> neighbours_;  ///< By rank.
};

}  // namespace mccl::schedule
