// Schedules on trees in which data moves up and down piece by piece, and the two trees that do not
// depend on a tree of cables: the binomial tree and the chain.

#include <algorithm>
#include <utility>
#include <vector>

#include "schedule/algorithm_table.h"
#include "schedule/builder.h"
#include "schedule/layout.h"

namespace mccl::schedule {
namespace {

/// Reduces this rank's piece `own` and the partial results of its children into `sum`, and sends
/// the result to the parent. A rank without children sends `own` and does not write `sum`.
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

/// The chain is a tree with a single branch: each rank exchanges with its two neighbours, and
/// pieces follow each other along it.
bool can_chain(const Problem& p) {
  using enum Collective;
  return one_of(p.collective, all_reduce, broadcast, reduce);
}

Schedule build_chain(const Problem& p) {
  const int root = p.collective == Collective::all_reduce ? 0 : p.root;
  // The chain follows the ring of cables, if there is one.
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

/// The binomial tree. The place of a rank is its distance above the root, modulo the size of the
/// group. The subtree of place v has the places [v, v + 2^k), where 2^k is the lowest set bit of v.
/// The children of v are at v + 1, v + 2, v + 4 and so on.
class BinomialTree {
 public:
  BinomialTree(int rank, int root, int size)
      : size_(size), root_(root), place_(wrap(rank - root, size)) {}

  int rank_at(int place) const { return (place + root_) % size_; }
  int place() const { return place_; }
  /// Returns the end of the range of places in the subtree of `place`.
  int end_of(int place) const {
    return place == 0 ? size_ : std::min(size_, place + (place & -place));
  }

  Tree view() const {
    Tree tree;
    if (place_ > 0) tree.parent = rank_at(place_ & (place_ - 1));
    for (const int child : children()) tree.children.push_back(rank_at(child));
    return tree;
  }

  /// The places of the children, the smallest subtree first.
  std::vector<int> children() const {
    std::vector<int> places;
    const int limit = place_ == 0 ? size_ : place_ & -place_;
    for (int bit = 1; bit < limit && place_ + bit < size_; bit *= 2) {
      places.push_back(place_ + bit);
    }
    return places;
  }

 private:
  int size_;
  int root_;
  int place_;
};

/// Builds gather and scatter. The data of a subtree travels together, in the order of places. In
/// the root's memory, parts are in rank order. A subtree whose ranks wrap around therefore has two
/// ranges in the root's memory, and sender and receiver cut its transfer at that boundary.
class Subtrees : public ScheduleWriter {
 public:
  explicit Subtrees(const Problem& problem)
      : ScheduleWriter(problem),
        tree_(problem.rank, problem.root, problem.size),
        view_(tree_.view()),
        parts_(problem.counts) {}

  void gather() {
    const std::vector<int> children = tree_.children();
    for (const int child : children) {
      for (const Region& region : where(child)) builder_.recv_pieces(tree_.rank_at(child), region);
    }
    const Region own = input({0, p_.counts[p_.rank]});
    if (view_.parent < 0) {
      builder_.copy_pieces(own, output(parts_[p_.rank]));
    } else if (children.empty()) {
      builder_.send_pieces(view_.parent, own);
    } else {
      builder_.copy_pieces(own, kept(tree_.place(), tree_.place() + 1));
      for (const Region& region : where(tree_.place())) builder_.send_pieces(view_.parent, region);
    }
  }

  void scatter() {
    const std::vector<int> children = tree_.children();
    const Region own = output({0, p_.counts[p_.rank]});
    if (view_.parent >= 0 && children.empty()) {
      builder_.recv_pieces(view_.parent, own);
      return;
    }
    if (view_.parent >= 0) {
      for (const Region& region : where(tree_.place())) builder_.recv_pieces(view_.parent, region);
    }
    for (auto child = children.rbegin(); child != children.rend(); ++child) {
      for (const Region& region : where(*child))
        builder_.send_pieces(tree_.rank_at(*child), region);
    }
    builder_.copy_pieces(
        view_.parent < 0 ? input(parts_[p_.rank]) : kept(tree_.place(), tree_.place() + 1), own);
  }

 private:
  /// The regions of this rank's memory that hold the data of the subtree at `place`.
  std::vector<Region> where(int place) {
    const int end = tree_.end_of(place);
    // Place of rank 0, or the nearer end of the subtree if rank 0 is not in it.
    const int seam = std::clamp(p_.size - p_.root, place, end);
    std::vector<Region> regions;
    for (const auto& [first, last] : {std::pair{place, seam}, std::pair{seam, end}}) {
      if (first == last) continue;
      regions.push_back(view_.parent < 0 ? at_root(first, last) : kept(first, last));
    }
    return regions;
  }

  Region at_root(int first, int last) const {
    const int rank = tree_.rank_at(first);
    const Extent region = parts_.range(rank, rank + last - first);
    return p_.collective == Collective::gather ? output(region) : input(region);
  }

  /// Scratch memory for the parts of the places [first, last), which are in this rank's subtree.
  Region kept(int first, int last) {
    if (!has_scratch_) {
      scratch_ = builder_.reserve_scratch(count_of(tree_.place(), tree_.end_of(tree_.place())));
      has_scratch_ = true;
    }
    return scratch({scratch_.offset + count_of(tree_.place(), first), count_of(first, last)});
  }

  std::size_t count_of(int first, int last) const {
    std::size_t count = 0;
    for (int place = first; place < last; ++place) count += p_.counts[tree_.rank_at(place)];
    return count;
  }

  const BinomialTree tree_;
  const Tree view_;
  const Parts parts_;
  Extent scratch_;
  bool has_scratch_ = false;
};

constexpr Writes<Subtrees> kSubtreeWrites[] = {
    {Collective::gather, &Subtrees::gather},
    {Collective::scatter, &Subtrees::scatter},
};

bool can_binomial_tree(const Problem& p) {
  using enum Collective;
  return one_of(p.collective, all_reduce, broadcast, reduce, gather, scatter);
}

Schedule build_binomial_tree(const Problem& p) {
  if (can_write<kSubtreeWrites>(p)) return write<kSubtreeWrites>(p);
  const int root = p.collective == Collective::all_reduce ? 0 : p.root;
  return build_on_tree(p, BinomialTree(p.rank, root, p.size).view());
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

const AlgorithmEntry kChain{.name = "chain", .can = can_chain, .build = build_chain};

const AlgorithmEntry kBinomialTree{
    .name = "binomial_tree", .can = can_binomial_tree, .build = build_binomial_tree};

}  // namespace mccl::schedule
