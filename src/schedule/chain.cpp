// A tree of one branch: each rank talks to two, and pieces follow each other along it.
#include "schedule/algorithms.h"
#include "schedule/parts.h"
#include "schedule/tree.h"

namespace mccl::schedule {

Schedule build_chain(const Problem& p) {
  const int root = p.collective == Collective::all_reduce ? 0 : p.root;
  const int place = wrap(p.rank - root, p.size);
  Tree tree;
  if (place > 0) tree.parent = wrap(p.rank - 1, p.size);
  if (place < p.size - 1) tree.children = {wrap(p.rank + 1, p.size)};
  return build_on_tree(p, tree);
}

}  // namespace mccl::schedule
