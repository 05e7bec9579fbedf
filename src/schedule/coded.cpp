// Sums that travel in blocks of a codec. Every rank encodes its contribution to each part,
// including its own, and sends it to the part's owner. The owner adds all contributions in rank
// order. In an all_reduce it then encodes the sum, and all ranks, including the owner, decode the
// same bytes. So each contribution and each sum is rounded only once, and all ranks get the same
// bits. The result does not depend on which rank adds a part or on the size of pieces.
//
// Where ranks share nodes, "rank" here means a node, and its contribution is the sum over its ranks
// (hierarchical.cpp, hierarchical_scatter.cpp).
#include <algorithm>

#include "schedule/algorithm_table.h"
#include "schedule/builder.h"

namespace mccl::schedule {
namespace {

/// Number of pieces whose contributions may be in flight while one piece is summed. With several
/// pieces in flight, a rank waits less for the slowest rank's contributions.
constexpr std::size_t kLead = 2;

class CodedSums : public ScheduleWriter {
 public:
  explicit CodedSums(const Problem& problem)
      : ScheduleWriter(problem),
        block_(problem.coding.block()),
        chunk_(whole_blocks(problem.chunk, block_)) {}

  void all_reduce() {
    const std::size_t blocks = divide_up(p_.count, block_);
    const std::size_t length = divide_up(blocks, ranks()) * block_;
    const auto part = [&](int rank) {
      return nth(Extent{0, p_.count}, static_cast<std::size_t>(rank), length);
    };
    const std::size_t pieces = divide_up(length, chunk_);
    reserve(std::min(length, chunk_), pieces);
    for (std::size_t c = 0; c < pieces + kLead; ++c) {
      if (c < pieces) contribute(part, c);
      if (c >= kLead) share(part, c - kLead);
    }
  }

 private:
  std::size_t ranks() const { return static_cast<std::size_t>(p_.size); }
  Extent piece(Extent whole, std::size_t index) const { return nth(whole, index, chunk_); }
  std::size_t slot(std::size_t index) const { return index % slots_ * room_; }

  /// Reserves slots that successive pieces use in turn: for outgoing contributions to each rank,
  /// incoming contributions from each rank, this rank's sum and the other ranks' sums.
  void reserve(std::size_t longest, std::size_t pieces) {
    room_ = divide_up(longest, block_) * block_;
    slots_ = std::min(kSlots, pieces);
    outgoing_ = builder_.reserve_coded(ranks() * slots_ * room_);
    operands_ = builder_.reserve_coded(ranks() * slots_ * room_);
    sums_ = builder_.reserve_sums(ranks() * slots_ * room_);
  }

  std::size_t operands_of(std::size_t c) const { return operands_ + slot(c) * ranks(); }
  Region operand(std::size_t c, int rank, std::size_t count) const {
    const std::size_t stride = divide_up(count, block_) * block_;
    return {Space::coded, operands_of(c) + static_cast<std::size_t>(rank) * stride, count};
  }
  Region sum(std::size_t c, int rank, std::size_t count) const {
    return {Space::sums, sums_ + static_cast<std::size_t>(rank) * slots_ * room_ + slot(c), count};
  }

  /// Sends this rank's contribution to the c-th piece of every part, and receives the other ranks'
  /// contributions to its own part.
  template <typename Part>
  void contribute(const Part& part, std::size_t c) {
    for (int d = 1; d < p_.size; ++d) {
      const int to = up(d);
      const Extent given = piece(part(to), c);
      const Region out{Space::coded,
                       outgoing_ + static_cast<std::size_t>(to) * slots_ * room_ + slot(c),
                       given.count};
      builder_.encode(input(given), out, given.offset);
      builder_.send(to, out);
    }
    const Extent own = piece(part(p_.rank), c);
    builder_.encode(input(own), operand(c, p_.rank, own.count), own.offset);
    for (int d = 1; d < p_.size; ++d) builder_.recv(down(d), operand(c, down(d), own.count));
  }

  /// Sends the sum of the c-th piece of this rank's part to all ranks, and receives the sums of the
  /// c-th pieces of their parts.
  template <typename Part>
  void share(const Part& part, std::size_t c) {
    const Extent own = piece(part(p_.rank), c);
    const Region result = sum(c, p_.rank, own.count);
    builder_.fold_coded(operands_of(c), p_.size, result, own.offset);
    for (int d = 1; d < p_.size; ++d) builder_.send(up(d), result);
    builder_.decode(p_.rank, result, output(own));
    for (int d = 1; d < p_.size; ++d) {
      const int from = down(d);
      const Extent theirs = piece(part(from), c);
      const Region in = sum(c, from, theirs.count);
      builder_.recv(from, in);
      builder_.decode(from, in, output(theirs));
    }
  }

  const std::size_t block_;
  const std::size_t chunk_;  // a multiple of the block
  std::size_t room_ = 0;     // elements reserved for one piece
  std::size_t slots_ = 1;
  std::size_t outgoing_ = 0;
  std::size_t operands_ = 0;
  std::size_t sums_ = 0;
};

}  // namespace

Schedule build_coded(const Problem& p) {
  if (p.collective == Collective::reduce_scatter) {
    // Treats every rank as a separate node.
    Problem alone = p;
    alone.nodes.clear();
    return build_hierarchical_scatter(alone);
  }
  CodedSums sums(p);
  sums.all_reduce();
  return sums.finish();
}

}  // namespace mccl::schedule
