// Estimates for the algorithms that send messages through links.
#include <algorithm>
#include <cmath>

#include "schedule/cost_terms.h"
#include "schedule/parts.h"

namespace mccl::schedule {
namespace {

// Assumptions (see cost_terms.h). They were set when schedules first ran over TCP between processes
// of one machine; those measurements were not kept. The brackets after each assumption give the
// effect of halving or doubling each constant: how many of 1274 choices took another algorithm, and
// by how much the worst of these is slower according to the unchanged model.

/// Flows that meet at a rank take kCrowding longer for each flow after the first, and at most
/// kMostCrowding longer. Both are fractions. [2, 8 %; 17, 8 %]
constexpr double kCrowding = 0.03;
constexpr double kMostCrowding = 0.2;
/// Pieces of more than kCachedPiece bytes have left the core's cache when the next stage reads
/// them, so each of their bytes takes kUncachedPiece times as long. kCachedPiece is half of that
/// cache on the machine where it was fitted. [kCachedPiece: 0, but other chunk sizes, 10 %;
/// kUncachedPiece = 1: 1, 10 %]
constexpr double kCachedPiece = 512 << 10;
constexpr double kUncachedPiece = 1.1;
/// Size in bytes. A fold whose operands take more than this runs at the rate of memory. [0]
constexpr double kCachedOperands = 4 << 20;
/// Extra cost of data that is kept in scratch memory and forwarded, as a fraction of a transfer.
/// [18, 8 %]
constexpr double kKeeping = 0.5;

/// Returns the time that a codec takes relative to bf16, whose rate each job measures. The ratios
/// are means of encoding and decoding, from `make bench` on an EPYC 9004.
double of_bf16(Codec codec) {
  switch (codec) {
    case Codec::none:
    case Codec::fp16:
    case Codec::bf16:
      return 1;
    case Codec::int8:
    case Codec::int4:
      return 1.2;
    case Codec::fp8_e4m3:
    case Codec::fp8_e5m2:
      return 1.8;
    case Codec::topk:
      return 2.7;
  }
  return 1;
}

/// Estimates a tree of `depth` hops from the root, where each rank exchanges every piece with
/// `degree` others.
Estimate tree_estimate(Collective collective, const CallSize& size, const LinkTerms& link,
                       double depth, double degree) {
  const double bytes = size.bytes;
  const double first = depth * (link.latency() + link.piece(bytes));
  const double first_reduced = depth * (link.latency() + link.reduced_piece(bytes));
  const double steps = size.pieces(bytes) * (degree + 1);
  if (collective == Collective::broadcast) {
    return {first + degree * (link.wire(bytes) - link.piece(bytes)), steps};
  }
  const double rest = link.reduced(bytes) - link.reduced_piece(bytes);
  if (collective == Collective::reduce) return {first_reduced + degree * rest, steps};
  const double both = degree > 1 || size.ranks == 2 ? degree : 2;  // In a chain, up and down.
  return {first + first_reduced + both * rest, 2 * steps};
}

}  // namespace

LinkTerms::LinkTerms(const CallSize& size, const Facts& facts, bool in_shared_memory)
    : size_(size),
      latency_(in_shared_memory ? facts.shared_latency_s : facts.latency_s),
      // A rank spends at most the latency of a message on handling it.
      work_(std::min(latency_,
                     in_shared_memory ? facts.shared_message_work_s : facts.message_work_s)),
      crowding_(1 + std::min(kMostCrowding, kCrowding * std::max(0.0, size.ranks - 2))),
      reduce_(1 / facts.reduce_bytes_per_s),
      coding_(1 / facts.coding_bytes_per_s),
      memory_(1 / facts.memory_bytes_per_s),
      uncached_operands_(std::max(1.0, facts.cached_bytes_per_s / facts.memory_bytes_per_s)) {
  const bool cached = std::min(size.chunk, std::max(size.bytes, 1.0)) <= kCachedPiece;
  byte_ = (cached ? 1 : kUncachedPiece) /
          (in_shared_memory ? facts.shared_bytes_per_s / facts.ranks_per_core : facts.bytes_per_s);
}

double LinkTerms::wire(double bytes) const {
  return std::max(1.0, size_.pieces(bytes)) * work_ + bytes * byte_;
}

double LinkTerms::piece(double bytes) const { return work_ + std::min(bytes, size_.chunk) * byte_; }

double LinkTerms::reduced_piece(double bytes) const {
  return piece(bytes) + std::min(bytes, size_.chunk) * reduce_;
}

double LinkTerms::fold(double bytes) const {
  const double operands = size_.ranks * std::min(size_.chunk, bytes / size_.ranks);
  return bytes * reduce_ * (operands <= kCachedOperands ? 1 : uncached_operands_);
}

double LinkTerms::coded(double bytes, Codec codec) const {
  const double from_memory = size_.bytes > kCachedOperands ? memory_ : 0;
  return bytes * (coding_ * of_bf16(codec) + from_memory);
}

double LinkTerms::phase(double work, double first_piece, int lanes) const {
  const double per_lane = size_.pieces(size_.largest / lanes);
  const double segments = std::max(1.0, std::ceil(per_lane / static_cast<double>(kPiecesPerPhase)));
  return segments * std::max(work / segments, latency_ + first_piece);
}

Estimate direct_estimate(Collective collective, const CallSize& size, const LinkTerms& link) {
  const double latency = link.latency(), others = size.others, ranks = size.ranks;
  const double whole = size.pieces(size.bytes), largest = size.pieces(size.largest);
  const double all_to_one = latency + others * link.wire(size.bytes) * link.crowding();
  const double parts_to_one = latency + others * link.wire(size.part) * link.crowding();
  switch (collective) {
    case Collective::all_reduce:
      return {all_to_one + link.fold(ranks * size.bytes), whole * 2 * ranks};
    case Collective::reduce:
      return {all_to_one + link.fold(ranks * size.bytes), whole * (ranks + 1)};
    case Collective::broadcast:
      return {latency + others * link.wire(size.bytes), whole * others};
    case Collective::reduce_scatter:
      return {parts_to_one + link.fold(size.bytes), largest * 2 * ranks};
    case Collective::scatter:
      return {latency + others * link.wire(size.part), largest * ranks};
    case Collective::gather:
      return {parts_to_one, largest * ranks};
    case Collective::all_gather:
    case Collective::all_to_all:
      return {parts_to_one, largest * 2 * ranks};
    default:
      return {latency + others * link.work(), 2 * others};
  }
}

Estimate coded_estimate(const Problem& p, const CallSize& size, const LinkTerms& link,
                        std::size_t element_bytes) {
  const double block = static_cast<double>(p.coding.block() * element_bytes);
  const double given = static_cast<double>(p.coding.block_bytes(Coded::contribution)) / block;
  const double summed = static_cast<double>(p.coding.block_bytes(Coded::sum)) / block;
  const bool shares = p.collective == Collective::all_reduce;
  const double steps = size.pieces(size.largest) * size.ranks * (shares ? 5 : 3);
  const double wire = size.others * link.crowding() *
                      (link.wire(size.part * given) + (shares ? link.wire(size.part * summed) : 0));
  // The codec processes the rank's own input, all contributions to its part and, in an all_reduce,
  // all sums.
  const double rounded = link.coded((shares ? 3 : 2) * size.bytes, p.coding.codec);
  const double first = std::min(size.chunk, size.part) / std::max(1.0, size.part);
  return {
      (shares ? 2 : 1) * link.latency() + std::max(wire, rounded) + first * std::min(wire, rounded),
      steps};
}

Estimate ring_estimate(Collective collective, const CallSize& size, const LinkTerms& link,
                       int lanes) {
  const double part = size.part, phases = size.others;
  const double steps = size.pieces(size.largest / lanes) * lanes * 2 * phases;
  const double gather = phases * link.phase(link.wire(part), link.piece(part), lanes);
  const double scatter = phases * link.phase(link.reduced(part), link.reduced_piece(part), lanes);
  if (collective == Collective::all_gather) return {gather, steps + size.pieces(size.largest)};
  if (collective == Collective::reduce_scatter) return {scatter, steps};
  return {scatter + gather, 2 * steps};
}

Estimate pairwise_estimate(Collective collective, const CallSize& size, const LinkTerms& link) {
  const double part = size.part, others = size.others;
  const double scatter = link.phase(others * link.reduced(part) * link.crowding(),
                                    others * link.reduced_piece(part), 1);
  const double gather =
      link.phase(others * link.wire(part) * link.crowding(), others * link.piece(part), 1);
  const double steps = size.pieces(size.largest) * 2 * others;
  if (collective == Collective::reduce_scatter) return {scatter, steps};
  if (collective == Collective::all_reduce) return {scatter + gather, 2 * steps};
  // Two exchanges are in flight at a time, so half of each latency is hidden.
  return {others * (link.latency() / 2 + link.wire(part)), steps + size.pieces(size.largest)};
}

Estimate recursive_doubling_estimate(Collective collective, const CallSize& size,
                                     const LinkTerms& link) {
  if (collective == Collective::all_gather) {
    Estimate sum{0, size.pieces(size.largest)};
    for (int ranks = 1; ranks < static_cast<int>(size.ranks); ranks *= 2) {
      const double group = ranks;
      sum.seconds += link.latency() + link.wire(group * size.part);
      sum.steps += 2 * size.pieces(group * size.largest);
    }
    return sum;
  }
  const double rounds = size.power_of_two ? size.rounds : size.rounds - 1;
  double seconds = rounds * (link.latency() + link.reduced(size.bytes));
  if (!size.power_of_two) {
    seconds += 2 * link.latency() + link.reduced(size.bytes) + link.wire(size.bytes);
  }
  return {seconds, size.pieces(size.bytes) * (2 * rounds + 2)};
}

Estimate binomial_tree_estimate(Collective collective, const CallSize& size,
                                const LinkTerms& link) {
  if (collective != Collective::gather && collective != Collective::scatter) {
    return tree_estimate(collective, size, link, size.rounds, size.rounds);
  }
  const double largest_subtree = 1 << (size.rounds - 1);
  double seconds = kKeeping * (largest_subtree - 1) * size.part * link.per_byte();
  for (int level = 0; level < size.rounds; ++level) {
    const double subtree = std::min<double>(1 << level, size.ranks - (1 << level));
    seconds += link.latency() + link.wire(size.part * subtree);
  }
  return {seconds, size.pieces(size.bytes) + 2 * size.ranks};
}

Estimate chain_estimate(Collective collective, const CallSize& size, const LinkTerms& link) {
  return tree_estimate(collective, size, link, size.others, 1);
}

Estimate cable_tree_estimate(Collective collective, const CallSize& size, const LinkTerms& link,
                             const std::vector<int>& parents) {
  int levels = 0;
  std::vector<int> children(parents.size(), 0);
  for (std::size_t rank = 0; rank < parents.size(); ++rank) {
    int level = 0;
    for (int above = parents[rank]; above >= 0; above = parents[static_cast<std::size_t>(above)])
      ++level;
    levels = std::max(levels, level);
    if (parents[rank] >= 0) ++children[static_cast<std::size_t>(parents[rank])];
  }
  const int most = *std::ranges::max_element(children);
  switch (collective) {
    case Collective::all_reduce:
    case Collective::broadcast:
    case Collective::reduce:
      return tree_estimate(collective, size, link, levels, most);
    default:
      return {2 * levels * link.latency() + size.others * link.wire(size.part),
              2 * size.others * std::max(1.0, size.pieces(size.largest))};
  }
}

Estimate dissemination_estimate(const CallSize& size, const LinkTerms& link) {
  return {size.rounds * (link.latency() + link.work()), 2.0 * size.rounds};
}

}  // namespace mccl::schedule
