// A reduce_scatter over several nodes whose sums travel in blocks of a codec: what the ranks of a
// node give is added up in its window, exactly, and only what goes between nodes is rounded.
//
// A rank's place is its number within its node. The parts of the ranks of one node are summed in
// another together, the part of place j by the rank of place j there (with fewer places, they go
// around), which encodes what its node gives and sends it to the part's rank. That adds up what all
// nodes give, its own too, in the order of the nodes, so an element is rounded once on each node.
//
// The window has two halves, used in turn. One arrival a round is enough: whoever has seen that of
// a round knows that everybody has read the round before, whose half is the next to be used.
#include <algorithm>
#include <span>
#include <vector>

#include "schedule/algorithms.h"
#include "schedule/builder.h"
#include "schedule/nodes.h"

namespace mccl::schedule {
namespace {

/// Sums of a node that wait to be encoded while the next is added up.
constexpr std::size_t kSums = 2;

class HierarchicalScatter {
 public:
  explicit HierarchicalScatter(const Problem& problem)
      : p_(problem),
        builder_(problem),
        parts_(problem.counts),
        nodes_(all_nodes(problem)),
        block_(problem.coding.block()),
        chunk_(whole_blocks(problem.chunk, block_)) {
    while (std::ranges::count(nodes_[node_], p_.rank) == 0) ++node_;
    place_ =
        static_cast<std::size_t>(std::ranges::find(nodes_[node_], p_.rank) - nodes_[node_].begin());
  }

  Schedule run() {
    const std::size_t pieces = divide_up(parts_.largest(), chunk_);
    reserve(pieces);
    for (std::size_t c = 0; c < pieces; ++c) {
      std::size_t sent = 0;
      for (std::size_t d = 1; d <= nodes_.size(); ++d) {  // its own last: nobody waits for that
        const std::vector<int>& to = nodes_[(node_ + d) % nodes_.size()];
        for (std::size_t first = 0; first < to.size(); first += places())
          give(c, std::span(to).subspan(first, std::min(places(), to.size() - first)), sent);
      }
      add_up(c);
    }
    if (!alone() && rounds_ == 0) builder_.await(kAllPeers, builder_.arrive());
    return builder_.finish();
  }

 private:
  std::size_t places() const { return nodes_[node_].size(); }
  bool alone() const { return places() == 1; }
  std::size_t slot(std::size_t c) const { return c % slots_ * room_; }
  Extent piece(int rank, std::size_t c) const {
    return nth(parts_[static_cast<std::size_t>(rank)], c, chunk_);
  }

  void reserve(std::size_t pieces) {
    const std::size_t longest = std::min(parts_.largest(), chunk_);
    room_ = divide_up(longest, block_) * block_;
    slots_ = std::max<std::size_t>(1, std::min(kSlots, pieces));
    std::size_t sends = 0;
    for (std::size_t n = 0; n < nodes_.size(); ++n) {
      if (n != node_ && nodes_[n].size() > place_)
        sends += divide_up(nodes_[n].size() - place_, places());
    }
    outgoing_ = builder_.reserve_coded(sends * slots_ * room_);
    operands_ = builder_.reserve_coded(nodes_.size() * slots_ * room_);
    if (alone()) return;
    width_ = std::max<std::size_t>(1, std::min(p_.window / (2 * places()), longest));
    builder_.use_window(2 * places() * width_);
    sums_ = builder_.reserve_scratch(kSums * room_);
  }

  /// What this node gives of the c-th piece of some ranks' parts: no more of them than places.
  void give(std::size_t c, std::span<const int> to, std::size_t& sent) {
    const Extent given = place_ < to.size() ? piece(to[place_], c) : Extent{};
    const Region sum = alone() ? input(given) : sum_of_node(c, to, given);
    if (given.count == 0) return;
    if (to[place_] == p_.rank) {
      builder_.encode(sum, operand(c, node_, given.count), given.offset);
      return;
    }
    const Region out{Space::coded, outgoing_ + sent++ * slots_ * room_ + slot(c), given.count};
    builder_.encode(sum, out, given.offset);
    builder_.send(to[place_], out);
  }

  /// Everybody publishes what the others add up, and adds up its own.
  Region sum_of_node(std::size_t c, std::span<const int> to, Extent given) {
    const Region sum = scratch({sums_.offset + folds_++ % kSums * room_, given.count});
    std::size_t longest = 0;
    for (const int rank : to) longest = std::max(longest, piece(rank, c).count);
    for (std::size_t i = 0; i < divide_up(longest, width_); ++i) {
      const std::size_t half = rounds_++ % 2 * places() * width_;
      for (std::size_t j = 0; j < to.size(); ++j) {
        if (j == place_) continue;
        builder_.publish(input(nth(piece(to[j], c), i, width_)), half + j * width_);
      }
      builder_.await(kAllPeers, builder_.arrive());
      builder_.read_fold(input(nth(given, i, width_)), half + place_ * width_, nth(sum, i, width_),
                         false);
    }
    return sum;
  }

  /// What all nodes give of the c-th piece of this rank's part.
  void add_up(std::size_t c) {
    const Extent own = piece(p_.rank, c);
    for (std::size_t d = 1; d < nodes_.size(); ++d) {
      const std::size_t from = (node_ + nodes_.size() - d) % nodes_.size();
      const std::vector<int>& ranks = nodes_[from];
      builder_.recv(ranks[place_ % ranks.size()], operand(c, from, own.count));
    }
    const Extent result{c * chunk_, own.count};
    builder_.fold_coded(operands_of(c), static_cast<int>(nodes_.size()), output(result),
                        own.offset);
  }

  std::size_t operands_of(std::size_t c) const { return operands_ + slot(c) * nodes_.size(); }
  Region operand(std::size_t c, std::size_t node, std::size_t count) const {
    return {Space::coded, operands_of(c) + node * divide_up(count, block_) * block_, count};
  }

  const Problem& p_;
  ScheduleBuilder builder_;
  const Parts parts_;
  const std::vector<std::vector<int>> nodes_;
  const std::size_t block_;
  const std::size_t chunk_;  // a multiple of the block
  std::size_t node_ = 0;
  std::size_t place_ = 0;
  std::size_t room_ = 0;   // of one piece
  std::size_t slots_ = 1;  // pieces on their way
  std::size_t width_ = 1;  // of a place in half a window
  std::size_t outgoing_ = 0;
  std::size_t operands_ = 0;
  Extent sums_;
  std::size_t folds_ = 0;
  std::size_t rounds_ = 0;
};

}  // namespace

Schedule build_hierarchical_scatter(const Problem& p) { return HierarchicalScatter(p).run(); }

}  // namespace mccl::schedule
