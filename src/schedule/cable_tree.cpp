// Schedules along a tree of cables. For every collective, a cable carries each element at most once
// per direction: sums are formed on the way to the ranks that need them, and a rank forwards each
// part only once over each of its cables.
#include <algorithm>
#include <cstdint>
#include <utility>

#include "schedule/algorithm_table.h"
#include "schedule/builder.h"

namespace mccl::schedule {
namespace {

/// A tree whose edges are cables, viewed with any rank as the root.
class CableTree {
 public:
  /// `parents`: the parent of each rank, or -1 for the root. Requires that they form a tree.
  explicit CableTree(const std::vector<int>& parents);

  /// The parent and the children of `rank` if `root` is the root of the tree.
  Tree view(int rank, int root) const;
  /// The rank that follows `from` on the route to `to`; -1 if `to` equals `from`.
  int next(int from, int to) const;
  /// The ranks of the subtree of `child`, including `child`, as seen from its neighbour `parent`;
  /// in rank order.
  std::vector<int> behind(int child, int parent) const;
  const std::vector<int>& neighbours(int rank) const {
    return neighbours_[static_cast<std::size_t>(rank)];
  }

 private:
  std::vector<std::vector<int>> neighbours_;  ///< Indexed by rank.
};

CableTree::CableTree(const std::vector<int>& parents) : neighbours_(parents.size()) {
  for (std::size_t rank = 0; rank < parents.size(); ++rank) {
    if (parents[rank] < 0) continue;
    neighbours_[rank].push_back(parents[rank]);
    neighbours_[static_cast<std::size_t>(parents[rank])].push_back(static_cast<int>(rank));
  }
  for (auto& each : neighbours_) std::ranges::sort(each);
}

std::vector<int> CableTree::behind(int child, int parent) const {
  std::vector<int> found;
  std::vector<std::pair<int, int>> open{{child, parent}};
  while (!open.empty()) {
    const auto [rank, from] = open.back();
    open.pop_back();
    found.push_back(rank);
    for (const int next : neighbours(rank)) {
      if (next != from) open.emplace_back(next, rank);
    }
  }
  std::ranges::sort(found);
  return found;
}

int CableTree::next(int from, int to) const {
  for (const int neighbour : neighbours(from)) {
    if (std::ranges::binary_search(behind(neighbour, from), to)) return neighbour;
  }
  return -1;
}

Tree CableTree::view(int rank, int root) const {
  Tree tree;
  if (rank != root) tree.parent = next(rank, root);
  for (const int neighbour : neighbours(rank)) {
    if (neighbour != tree.parent) tree.children.push_back(neighbour);
  }
  std::ranges::stable_sort(tree.children, {},
                           [&](int child) { return behind(child, rank).size(); });
  return tree;
}

class AlongCables : public ScheduleWriter {
 public:
  explicit AlongCables(const Problem& problem) : ScheduleWriter(problem), tree_(problem.tree) {
    for (int rank = 0; rank < p_.size; ++rank) towards_.push_back(tree_.next(p_.rank, rank));
  }

  void all_gather() {
    const Parts parts(p_.counts);
    for_each_piece(parts, [&](int source, std::size_t c) {
      const Region piece = builder_.piece(output(parts[source]), c);
      if (source == p_.rank) {
        const Region own = builder_.piece(input({0, parts[source].count}), c);
        spread(own, -1);
        builder_.copy(own, piece);
      } else {
        builder_.recv(towards_[source], piece);
        spread(piece, towards_[source]);
      }
    });
  }

  void reduce_scatter() {
    const Parts parts(p_.counts);
    reserve_slots();
    for_each_piece(parts, [&](int owner, std::size_t c) {
      Region own = builder_.piece(input(parts[owner]), c);
      const Tree tree = tree_.view(p_.rank, owner);
      const bool at_owner = owner == p_.rank;
      const Region sum = at_owner ? builder_.piece(output({0, parts[owner].count}), c)
                                  : slot(tree.children.empty() ? 0 : own.count);
      for (const int child : tree.children) {
        builder_.recv_reduce(child, own, sum, at_owner && child == tree.children.back());
        own = sum;
      }
      if (!at_owner) builder_.send(tree.parent, own);
    });
  }

  void gather() {
    const Parts parts(p_.counts);
    const bool at_root = p_.rank == p_.root;
    reserve_slots();
    for_each_piece(parts, [&](int source, std::size_t c) {
      if (source == p_.rank) {
        const Region own = builder_.piece(input({0, parts[source].count}), c);
        if (at_root) return builder_.copy(own, builder_.piece(output(parts[source]), c));
        builder_.send(towards_[p_.root], own);
      } else if (at_root || tree_.next(p_.rank, p_.root) != towards_[source]) {
        const Region piece = builder_.piece(output(parts[source]), c);
        pass(towards_[source], at_root ? -1 : towards_[p_.root],
             at_root ? piece : slot(piece.count));
      }
    });
  }

  void scatter() {
    const Parts parts(p_.counts);
    const bool at_root = p_.rank == p_.root;
    reserve_slots();
    for_each_piece(parts, [&](int owner, std::size_t c) {
      const Region own = builder_.piece(output({0, parts[owner].count}), c);
      const Region given = builder_.piece(input(parts[owner]), c);
      if (at_root) {
        if (owner == p_.rank) return builder_.copy(given, own);
        builder_.send(towards_[owner], given);
      } else if (owner == p_.rank) {
        builder_.recv(towards_[p_.root], own);
      } else if (towards_[owner] != towards_[p_.root]) {
        pass(towards_[p_.root], towards_[owner], slot(own.count));
      }
    });
  }

  /// A rank signals its parent when all ranks below it have arrived, and its children when all
  /// ranks have arrived.
  void barrier() {
    const Tree tree = tree_.view(p_.rank, 0);
    std::vector<std::uint32_t> before;
    const Region nothing = output({0, 0});
    for (const int child : tree.children) before.push_back(builder_.recv(child, nothing));
    const auto after_all = [&](std::uint32_t step) {
      for (const std::uint32_t earlier : before) builder_.after(earlier, step);
    };
    if (tree.parent >= 0) {
      after_all(builder_.send(tree.parent, nothing));
      before.push_back(builder_.recv(tree.parent, nothing));
    }
    for (const int child : tree.children) after_all(builder_.send(child, nothing));
  }

 private:
  static constexpr std::size_t kSlotsOfEach = 2;

  /// Visits the first piece of every rank's part, then the second piece of every part and so on, so
  /// that all cables stay busy.
  template <typename Visit>
  void for_each_piece(const Parts& parts, const Visit& visit) {
    for (std::size_t c = 0; c < builder_.pieces(parts.largest()); ++c) {
      for (int rank = 0; rank < p_.size; ++rank) visit(rank, c);
    }
  }

  void spread(const Region& piece, int but) {
    for (const int neighbour : tree_.neighbours(p_.rank)) {
      if (neighbour != but) builder_.send(neighbour, piece);
    }
  }

  void pass(int from, int to, const Region& through) {
    builder_.recv(from, through);
    if (to >= 0) builder_.send(to, through);
  }

  void reserve_slots() {
    slots_ = kSlotsOfEach * static_cast<std::size_t>(p_.size);
    scratch_ = builder_.reserve_scratch(slots_ * builder_.chunk());
  }

  Region slot(std::size_t count) {
    return scratch({scratch_.offset + (turn_++ % slots_) * builder_.chunk(), count});
  }

  const CableTree tree_;
  std::vector<int> towards_;  ///< The next hop towards each rank.
  Extent scratch_;
  std::size_t slots_ = 1;
  std::size_t turn_ = 0;
};

constexpr Writes<AlongCables> kCableTreeWrites[] = {
    {Collective::all_gather, &AlongCables::all_gather},
    {Collective::reduce_scatter, &AlongCables::reduce_scatter},
    {Collective::gather, &AlongCables::gather},
    {Collective::scatter, &AlongCables::scatter},
    {Collective::barrier, &AlongCables::barrier},
};

bool can_cable_tree(const Problem& p) {
  return !p.tree.empty() && p.collective != Collective::all_to_all;
}

Schedule build_cable_tree(const Problem& p) {
  if (can_write<kCableTreeWrites>(p)) return write<kCableTreeWrites>(p);
  const CableTree tree(p.tree);
  int root = p.root;
  if (p.collective == Collective::all_reduce)
    root = static_cast<int>(std::ranges::find(p.tree, -1) - p.tree.begin());
  return build_on_tree(p, tree.view(p.rank, root));
}

}  // namespace

const AlgorithmEntry kCableTree{
    .name = "cable_tree", .can = can_cable_tree, .build = build_cable_tree};

}  // namespace mccl::schedule
