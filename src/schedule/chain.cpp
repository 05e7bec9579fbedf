// A tree with a single branch: each rank exchanges with its two neighbours, and pieces follow each
// other along it.
#include <algorithm>

#include "schedule/algorithm_table.h"
#include "schedule/parts.h"
#include "schedule/tree.h"

namespace mccl::schedule {
namespace {

bool can_chain(const Problem& p) {
  using enum Collective;
  return one_of(p.collective, all_reduce, broadcast, reduce);
}

Schedule build_chain(const Problem& p) {
  const int root = p.collective == Collective::all_reduce ? 0 : p.root;
  // Follows the ring of cables, if there is one.
  const auto seat_of = [&](int rank) {
    return p.ring.empty() ? rank
                          : static_cast<int>(std::ranges::find(p.ring, rank) - p.ring.begin());
  };
  const auto rank_at = [&](int seat) {
    seat = wrap(seat, p.size);
    return p.ring.empty() ? seat : p.ring[static_cast<std::size_t>(seat)];
  };
  const int seat = seat_of(p.rank);
  const int place = wrap(seat - seat_of(root), p.size);
  Tree tree;
  if (place > 0) tree.parent = rank_at(seat - 1);
  if (place < p.size - 1) tree.children = {rank_at(seat + 1)};
  return build_on_tree(p, tree);
}

}  // namespace

const AlgorithmEntry kChain{.name = "chain", .can = can_chain, .build = build_chain};

}  // namespace mccl::schedule
