// A schedule: the steps of one rank in one collective, as data. This layer uses no sockets, threads
// or clocks.
//
// An algorithm writes a rank's steps in program order, as if each step ended before the next began.
// The executor runs a step as soon as its data allow. A step waits only for earlier steps whose
// regions conflict with its own (read after write, write after read, write after write).
// `ScheduleBuilder::finish()` computes these dependencies. Messages from one rank to another keep
// their order: the k-th send to a peer matches the peer's k-th receive from this rank.
//
// The ranks of a node also have a window: each rank owns memory that all of them can read. A rank
// publishes into its own memory, and one publication serves many readers. Arrivals take the place
// of messages. A rank arrives by adding 1 to its own count, and every rank can wait until a peer's
// count reaches a value. Seeing that value guarantees two things: everything that the peer
// published before that arrival is readable, and the peer has finished all reads that preceded that
// arrival. Steps that use the window run one after another. All ranks of a node arrive the same
// number of times in a call, and at least once.
//
// A rank's input or output may lie in memory that the other ranks of its node can read. Then a
// publication copies nothing: the readers read the memory itself. For this, a step that reads names
// the region from which the peer published. A publisher does not write to that region before the
// readers have arrived, and leaves the call only when all of them have.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/coding.h"
#include "mccl/types.h"

namespace mccl::schedule {

/// The memory that a region lies in. `coded` and `sums` hold blocks of a codec: `coded` holds the
/// contributions of single ranks, `sums` the sums of contributions. Offsets and counts in these two
/// memories are in elements too, and every region in them starts at a block boundary.
enum class Space : std::uint8_t { input, output, scratch, coded, sums };
constexpr bool holds_blocks(Space space) { return space >= Space::coded; }

/// `count` elements of one memory, starting at `offset`.
struct Region {
  Space space = Space::output;
  std::size_t offset = 0;
  std::size_t count = 0;
  friend bool operator==(const Region&, const Region&) = default;
};

/// Bytes that a region occupies. `element_bytes` is used only if the region holds no blocks.
inline std::size_t byte_count(const Region& region, std::size_t element_bytes,
                              const Coding& coding) {
  if (!holds_blocks(region.space)) return region.count * element_bytes;
  return coding.bytes(region.count,
                      region.space == Space::coded ? Coded::contribution : Coded::sum);
}

enum class StepKind : std::uint8_t {
  send,  ///< sends src to peer
  recv,  ///< receives from peer into dst
  /// dst = src op the received data. The lower rank's operand is first, so that two ranks that
  /// exchange operands compute the same bits. src may equal dst.
  recv_reduce,
  copy,  ///< dst = src
  /// dst = op over `operands` adjacent regions, in order. Each has dst.count elements; the first
  /// starts at src.offset (src.count == operands * dst.count).
  fold,
  encode,  ///< dst = src encoded by the codec; dst holds blocks
  decode,  ///< dst = src decoded; src holds blocks that `peer`, which may be this rank, encoded
  /// dst = sum of `operands` adjacent coded regions, one per rank or per node. Each has dst.count
  /// elements padded to whole blocks; the first starts at src.offset. The sum is rounded again if
  /// dst holds blocks.
  fold_coded,
  publish,  ///< copies src into this rank's window at the offset `window`
  arrive,   ///< adds 1 to this rank's count of arrivals
  await,  ///< waits until `peer` (kAllPeers: every other rank of the node) has arrived `mark` times
  /// the same as await, but only if peers may have read this rank's own memory
  await_readers,
  /// dst = the data that `peer` published at `window`, from the region src of its memory
  read,
  /// dst = op over the ranks of the node in rank order: src of this rank, and the data that the
  /// other ranks published at `window`, from the same region of their memory (src may equal dst)
  read_fold,
};

/// True for steps that use the window.
constexpr bool is_window(StepKind kind) { return kind >= StepKind::publish; }
constexpr bool is_message(StepKind kind) {
  return kind == StepKind::send || kind == StepKind::recv || kind == StepKind::recv_reduce;
}

constexpr bool awaits(StepKind kind) {
  return kind == StepKind::await || kind == StepKind::await_readers;
}
/// True for steps that read this rank's input, output, scratch or blocks; writes_memory() is true
/// for steps that write them. Accesses to the window do not count, because steps that use it run in
/// order anyway.
constexpr bool reads_memory(StepKind kind) {
  return kind != StepKind::recv && kind != StepKind::arrive && !awaits(kind) &&
         kind != StepKind::read;
}
constexpr bool writes_memory(StepKind kind) {
  return kind != StepKind::send && kind != StepKind::arrive && !awaits(kind) &&
         kind != StepKind::publish;
}

inline constexpr std::int32_t kAllPeers = -1;

struct Step {
  StepKind kind = StepKind::copy;
  /// True if dst holds the complete reduction after this step. For an average, the executor then
  /// divides dst by the number of ranks; fold steps divide in the pass that adds the operands.
  bool completes = false;
  std::int32_t peer = kAllPeers;
  std::uint32_t operands = 0;
  std::uint32_t mark = 0;
  std::size_t window = 0;
  /// Used by encode and fold_coded: index of the first element of src in the call's input.
  std::size_t element = 0;
  Region src;
  Region dst;
};

template <typename... Collectives>
constexpr bool one_of(Collective collective, Collectives... of) {
  return ((collective == of) || ...);
}

/// The collective that one rank must perform. Every rank has the same Problem except for rank,
/// in_place and, for all_to_all, the counts.
struct Problem {
  Collective collective = Collective::all_reduce;
  int rank = 0;
  int size = 1;
  int root = 0;
  /// Number of elements of the buffer; used by all_reduce, broadcast and reduce.
  std::size_t count = 0;
  /// Number of elements of each rank's part; used by all_gather, gather, scatter and
  /// reduce_scatter. For all_to_all: number of elements that this rank sends to each rank. Holds
  /// `size` entries, or none for the other collectives.
  std::vector<std::size_t> counts;
  /// all_to_all: number of elements that this rank receives from each rank.
  std::vector<std::size_t> recv_counts;
  /// all_to_all: true if every rank sends every other rank the same number of elements, and all
  /// ranks know this.
  bool even = false;
  /// True if input and output are the same memory (see Group). A broadcast is always in place
  /// because it has only an output. If this is false, the input is never written. A reduce_scatter
  /// or scatter in place writes only the rank's own part of its input.
  bool in_place = false;
  /// Maximum message size in elements, at least 1. Transfers are cut into pieces of at most this
  /// size.
  std::size_t chunk = 1;
  /// The node of each rank. Empty if no two ranks share a node.
  std::vector<int> nodes = {};
  /// Capacity of a rank's window in elements; 0 if there is no window.
  std::size_t window = 0;
  /// An order of the ranks in which a cable joins each rank to the next, and the last to the first
  /// (cable_map.h). Empty if there is no such order, or if cables join every pair of ranks.
  std::vector<int> ring = {};
  /// A tree along the cables: the parent of each rank, or -1 for the root. Empty if the cables join
  /// every pair or do not connect all ranks.
  std::vector<int> tree = {};
  /// The codec of sums on the wire; empty if they are exact. If set, the collective is all_reduce
  /// or reduce_scatter.
  Coding coding = {};

  friend bool operator==(const Problem&, const Problem&) = default;
};

/// The memories of a rank in which it leaves published data unchanged until all readers have read
/// them.
struct Readable {
  bool input = false;
  bool output = false;
  bool holds(Space space) const {
    return space == Space::input ? input : space == Space::output && output;
  }
};

struct Schedule {
  std::vector<Step> steps;
  std::size_t scratch_count = 0;  ///< Elements of scratch memory needed.
  std::size_t coded_count = 0;    ///< Elements of memory needed for coded contributions.
  std::size_t sums_count = 0;     ///< Elements of memory needed for coded sums.
  std::size_t window_count = 0;   ///< Elements of window needed; equal on all ranks of a node.
  /// Number of times that the rank arrives; equal on all ranks of a node. 0 if the schedule uses no
  /// window.
  std::uint32_t arrivals = 0;
  Readable readable;  ///< May differ between ranks.
  /// True if memory of some rank may be read in place; equal on all ranks of a node.
  bool reads_in_place = false;
  /// True if each step waits for the step before it. Such a schedule uses only the window and sends
  /// no messages.
  bool in_order = false;

  /// Step i may start when waits[i] earlier steps have ended: those that have step i among their
  /// successors. The successors of a step s are successors[successor_begin[s] .. successor_begin[s
  /// + 1]), without the last index.
  std::vector<std::uint32_t> waits;
  std::vector<std::uint32_t> successor_begin;
  std::vector<std::uint32_t> successors;
};

enum class Algorithm : std::uint8_t {
  direct,              ///< every rank sends directly to each rank that needs its data
  ring,                ///< each rank exchanges with its two neighbours, pipelined
  ring_both,           ///< a ring with half of the data in each direction
  recursive_doubling,  ///< log2(size) exchanges
  binomial_tree,
  chain,          ///< a tree of one branch, pipelined
  pairwise,       ///< size - 1 exchanges, each with a different partner
  dissemination,  ///< a barrier in log2(size) rounds
  one_shot,       ///< through the window: every rank reads all data that it needs
  two_shot,       ///< through the window: every rank reduces one part, and reads all other parts
  hierarchical,   ///< reduces inside nodes, exchanges between nodes, distributes inside nodes
  cable_tree,     ///< along a tree of cables, where cables do not join every pair
};
inline constexpr int kAlgorithmCount = 12;

std::string_view name_of(Algorithm algorithm);

/// True if `algorithm` can perform `problem`.
bool can(Algorithm algorithm, const Problem& problem);

/// Returns the schedule of one rank. A pure function. Requires can(algorithm, problem).
Schedule build(Algorithm algorithm, const Problem& problem);

/// Offset in elements at which rank `rank`'s part begins.
std::size_t displacement(const std::vector<std::size_t>& counts, int rank);

}  // namespace mccl::schedule
