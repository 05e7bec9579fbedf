// A reduce_scatter over several nodes whose sums travel in blocks of a codec. The inputs of a
// node's ranks are summed exactly in its window. Only the sums of whole nodes are rounded.
//
// A rank's place is its index in its node. For each destination node, the ranks of a source node
// sum the parts that belong to the destination's ranks. The source rank at place j sums the part of
// the destination rank at place j; if the source node has only n ranks and the destination node has
// more, it also sums the parts of the ranks at places j + n, j + 2n and so on. The source rank
// encodes the sum of its node and sends it to the part's owner. The owner adds the sums of all
// nodes, including its own, in node order. So each element is rounded once per node.
//
// The window has two halves, used in turn. One arrival per round is enough: once a rank has seen
// all arrivals of a round, all ranks have read the data of the previous round. The half that holds
// those data can then be reused.
#include <algorithm>
#include <span>
#include <vector>

#include "schedule/algorithm_table.h"
#include "schedule/builder.h"

namespace mccl::schedule {
namespace {

/// Number of buffers for a node's sums: one sum may wait for encoding while the next is computed.
constexpr std::size_t kSums = 2;

class HierarchicalScatter : public ScheduleWriter {
 public:
  explicit HierarchicalScatter(const Problem& problem)
      : ScheduleWriter(problem),
        parts_(problem.counts),
        nodes_(all_nodes(problem)),
        block_(problem.coding.block()),
        chunk_(whole_blocks(problem.chunk, block_)) {
    while (std::ranges::count(nodes_[node_], p_.rank) == 0) ++node_;
    place_ =
        static_cast<std::size_t>(std::ranges::find(nodes_[node_], p_.rank) - nodes_[node_].begin());
  }

  void run() {
    const std::size_t pieces = divide_up(parts_.largest(), chunk_);
    reserve(pieces);
    for (std::size_t c = 0; c < pieces; ++c) {
      std::size_t sent = 0;
      // The sums for this rank's own node are last, because no rank of another node waits for them.
      for (std::size_t d = 1; d <= nodes_.size(); ++d) {
        const std::vector<int>& to = nodes_[(node_ + d) % nodes_.size()];
        for (std::size_t first = 0; first < to.size(); first += places())
          give(c, std::span(to).subspan(first, std::min(places(), to.size() - first)), sent);
      }
      add_up(c);
    }
    if (!alone() && rounds_ == 0) builder_.await(kAllPeers, builder_.arrive());
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
    builder_.allow_reading({.input = true});
    sums_ = builder_.reserve_scratch(kSums * room_);
  }

  /// Sums, together with the other ranks of this node, the c-th pieces of the parts of the ranks
  /// `to`, of which there are at most places(). This rank encodes the sum for to[place_] and sends
  /// it to that rank, unless that is this rank. `sent` counts the sends of the c-th piece.
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

  /// Computes the sum through the window: every rank publishes the inputs that other ranks sum, and
  /// sums the pieces that belong to its own place.
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

  /// Adds the sums of all nodes for the c-th piece of this rank's part.
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

  const Parts parts_;
  const std::vector<std::vector<int>> nodes_;
  const std::size_t block_;
  const std::size_t chunk_;  // a multiple of the block
  std::size_t node_ = 0;
  std::size_t place_ = 0;
  std::size_t room_ = 0;   // elements reserved for one piece
  std::size_t slots_ = 1;  // pieces in flight
  std::size_t width_ = 1;  // elements of one place in half of the window
  std::size_t outgoing_ = 0;
  std::size_t operands_ = 0;
  Extent sums_;
  std::size_t folds_ = 0;
  std::size_t rounds_ = 0;
};

}  // namespace

Schedule build_hierarchical_scatter(const Problem& p) {
  HierarchicalScatter scatter(p);
  scatter.run();
  return scatter.finish();
}

}  // namespace mccl::schedule
