#include "schedule/tree.h"

#include <algorithm>

#include "schedule/builder.h"

namespace mccl::schedule {
namespace {

/// Reduces a piece over the children and sends it to the parent. `sum` receives the partial sum of
/// a rank with children; at the root it becomes the result.
void climb(ScheduleBuilder& builder, const Tree& tree, Region own, const Region& sum) {
  const bool root = tree.parent < 0;
  for (const int child : tree.children) {
    builder.recv_reduce(child, own, sum, root && child == tree.children.back());
    own = sum;
  }
  if (!root) builder.send(tree.parent, own);
}

/// Receives data from the parent and sends it to the children. The largest subtree is first,
/// because it is the deepest.
void descend(ScheduleBuilder& builder, const Tree& tree, const Region& data) {
  if (tree.parent >= 0) builder.recv(tree.parent, data);
  for (auto child = tree.children.rbegin(); child != tree.children.rend(); ++child) {
    builder.send(*child, data);
  }
}

Schedule build_reduce(const Problem& p, const Tree& tree) {
  ScheduleBuilder builder(p);
  const Extent all{0, p.count};
  const std::size_t pieces = builder.pieces(p.count);
  const bool keeps_sum = tree.parent >= 0 && !tree.children.empty();
  const std::size_t slots = keeps_sum ? std::min(kSlots, pieces) : 0;
  const Extent sums = builder.reserve_scratch(slots * builder.chunk());
  for (std::size_t c = 0; c < pieces; ++c) {
    const Region own = builder.piece(input(all), c);
    const Region sum = keeps_sum ? scratch({sums.offset + c % slots * builder.chunk(), own.count})
                                 : builder.piece(output(all), c);
    climb(builder, tree, own, sum);
  }
  return builder.finish();
}

}  // namespace

Schedule build_on_tree(const Problem& p, const Tree& tree) {
  if (p.collective == Collective::reduce) return build_reduce(p, tree);
  ScheduleBuilder builder(p);
  const Extent all{0, p.count};
  for (std::size_t c = 0; c < builder.pieces(p.count); ++c) {
    const Region result = builder.piece(output(all), c);
    if (p.collective == Collective::all_reduce) {
      climb(builder, tree, builder.piece(input(all), c), result);
    }
    descend(builder, tree, result);
  }
  return builder.finish();
}

}  // namespace mccl::schedule
