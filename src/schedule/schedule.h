// What one rank does for one collective, as data. No sockets, threads or time here.
//
// An algorithm writes a rank's steps in program order, as if each step ended before the next began.
// The executor runs them as soon as their data allow: a step waits only for the earlier steps whose
// regions conflict with its own (read after write, write after read, write after write), which
// ScheduleBuilder::finish() works out. Messages from one rank to another keep their order: the k-th
// send to a peer is the peer's k-th receive from this rank.
//
// The ranks of a node also have a window: memory of each rank that all of them can read. A rank
// publishes into its own; one publication serves many readers. In place of messages there are
// arrivals: each rank counts its own, everyone can wait for a peer's count, and a count says that
// what the rank published before it may be read, and that what the rank read before it has been
// read. Steps that concern the window run one after another. All ranks of a node arrive equally
// often in a call, and at least once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/coding.h"
#include "mccl/types.h"

namespace mccl::schedule {

/// The last two hold blocks of a codec: what ranks give, and sums. They too are counted in
/// elements; what begins in them begins a block.
enum class Space : std::uint8_t { input, output, scratch, coded, sums };
constexpr bool holds_blocks(Space space) { return space >= Space::coded; }

/// `count` elements from `offset` of one of the memories.
struct Region {
  Space space = Space::output;
  std::size_t offset = 0;
  std::size_t count = 0;
  friend bool operator==(const Region&, const Region&) = default;
};

/// That a region takes, of elements of so many bytes where it holds no blocks.
inline std::size_t byte_count(const Region& region, std::size_t element_bytes,
                              const Coding& coding) {
  if (!holds_blocks(region.space)) return region.count * element_bytes;
  return coding.bytes(region.count,
                      region.space == Space::coded ? Coded::contribution : Coded::sum);
}

enum class StepKind : std::uint8_t {
  send,         ///< src to peer
  recv,         ///< from peer to dst
  recv_reduce,  ///< dst = src op what comes from peer, the lower rank's operand first, so that two
                ///< ranks that exchange operands compute the same bits (src may equal dst)
  copy,         ///< dst = src
  fold,    ///< dst = op over `operands` regions of dst.count elements that lie one after another
           ///< from src.offset on, in that order (src.count == operands * dst.count)
  encode,  ///< dst, which holds blocks, = src, rounded
  decode,  ///< dst = src, which holds blocks that `peer` (or this rank) has made
  fold_coded,  ///< dst = sum of `operands` regions of dst.count elements in blocks, those of each
               ///< rank, or of each node, each of whole blocks, one after another from src.offset
               ///< on; rounded anew where dst holds blocks
  publish,     ///< this rank's window, from `window` on, = src
  arrive,      ///< this rank's next arrival
  await,       ///< until `peer` (kAllPeers: every other rank of the node) has arrived `mark` times
  read,        ///< dst = what `peer` published from `window` on
  read_fold,  ///< dst = op over the ranks of the node in rank order: src of this rank, and what the
              ///< others published from `window` on (src may equal dst)
};

/// Whether a step concerns the window.
constexpr bool is_window(StepKind kind) { return kind >= StepKind::publish; }
constexpr bool is_message(StepKind kind) {
  return kind == StepKind::send || kind == StepKind::recv || kind == StepKind::recv_reduce;
}

inline constexpr std::int32_t kAllPeers = -1;

struct Step {
  StepKind kind = StepKind::copy;
  /// dst now holds the whole reduction: the executor divides it here for an average. A fold that
  /// completes does both at once.
  bool completes = false;
  std::int32_t peer = kAllPeers;
  std::uint32_t operands = 0;
  std::uint32_t mark = 0;
  std::size_t window = 0;
  /// encode, fold_coded: where in the call's input the first of its elements lies.
  std::size_t element = 0;
  Region src;
  Region dst;
};

/// What is asked of one rank. Every rank's Problem is the same but for rank, in_place and, for
/// all_to_all, the counts.
struct Problem {
  Collective collective = Collective::all_reduce;
  int rank = 0;
  int size = 1;
  int root = 0;
  /// Elements of the buffer, for all_reduce, broadcast and reduce.
  std::size_t count = 0;
  /// Elements of each rank's part, for all_gather, gather, scatter and reduce_scatter; for
  /// all_to_all, what this rank sends to each. Size `size`, else empty.
  std::vector<std::size_t> counts;
  /// all_to_all: what this rank receives from each.
  std::vector<std::size_t> recv_counts;
  /// all_to_all: every rank gives every other the same number of elements, as all of them know.
  bool even = false;
  /// input and output are the same memory (see Group). broadcast is always in place: it has only an
  /// output. Input is never written when this is false; and a reduce_scatter or scatter in place
  /// writes no more of its input than the rank's own part.
  bool in_place = false;
  /// Largest message, in elements (at least 1): transfers are cut into pieces of at most this many.
  std::size_t chunk = 1;
  /// The node of each rank; empty when no two ranks share one.
  std::vector<int> nodes = {};
  /// Elements that a rank can have published at a time; 0 when there is no window.
  std::size_t window = 0;
  /// Where cables do not join all ranks (cable_map.h): an order in which a cable joins each rank to
  /// the next, and the last to the first; empty where there is none, or every rank is joined to
  /// every other.
  std::vector<int> ring = {};
  /// And a tree along the cables: of each rank the one above it, -1 for one; empty where ring is.
  std::vector<int> tree = {};
  /// How sums travel; nothing where they are exact. Then the collective is all_reduce or
  /// reduce_scatter.
  Coding coding = {};

  friend bool operator==(const Problem&, const Problem&) = default;
};

struct Schedule {
  std::vector<Step> steps;
  std::size_t scratch_count = 0;  ///< Elements of scratch memory needed.
  std::size_t coded_count = 0;    ///< The same of blocks that ranks give.
  std::size_t sums_count = 0;     ///< And of sums.
  std::size_t window_count = 0;   ///< Elements of window needed; equal on all ranks of a node.
  std::uint32_t arrivals = 0;     ///< Equal on all ranks of a node; 0 when it needs no window.
  /// Every step waits for the one before it, and only for that; there are no messages.
  bool in_order = false;

  /// Step i may start when waits[i] earlier steps have ended; they are those that list i among
  /// their successors: successors[successor_begin[i] .. successor_begin[i + 1]).
  std::vector<std::uint32_t> waits;
  std::vector<std::uint32_t> successor_begin;
  std::vector<std::uint32_t> successors;
};

enum class Algorithm : std::uint8_t {
  direct,              ///< everyone sends to everyone concerned
  ring,                ///< neighbours, pipelined
  ring_both,           ///< half of the data each way around
  recursive_doubling,  ///< log2(size) exchanges
  binomial_tree,
  chain,          ///< a tree of one branch, pipelined
  pairwise,       ///< size - 1 exchanges, a different partner each
  dissemination,  ///< barrier
  one_shot,       ///< through the window: everyone reads all that it needs
  two_shot,       ///< through the window: everyone reduces a part and reads the others' results
  hierarchical,   ///< reduce inside the nodes, exchange between them, share inside
  cable_tree,     ///< where cables do not join all ranks: along a tree of them
};
inline constexpr int kAlgorithmCount = 12;

std::string_view name_of(Algorithm algorithm);

/// Whether `algorithm` can do `problem`.
bool can(Algorithm algorithm, const Problem& problem);

/// Pure. Requires can(algorithm, problem).
Schedule build(Algorithm algorithm, const Problem& problem);

/// Where rank `rank`'s part begins.
std::size_t displacement(const std::vector<std::size_t>& counts, int rank);

}  // namespace mccl::schedule
