// The algorithm for groups that span several nodes. As much as possible is done inside each node,
// through its window, so that little data travels between nodes.
//
// An all_reduce has three phases. First, each rank of a node reduces one part. Second, the ranks
// with the same index in their nodes, called a column, hold the same part and reduce it among
// themselves. With a codec, this phase rounds the sum of each node. Third, every rank reads the
// parts of the other ranks of its node. There are as many columns as the smallest node has ranks.
// Large buffers are cut into segments whose phases overlap: while the nodes exchange one segment,
// the next segment is reduced.
//
// A broadcast goes from the root to one rank of every other node, and from the root and these ranks
// to the other ranks of their nodes. hierarchical_scatter.cpp implements reduce_scatter.
#include <algorithm>
#include <array>
#include <bit>
#include <vector>

#include "schedule/algorithm_table.h"
#include "schedule/builder.h"

namespace mccl::schedule {
namespace {

/// Number of segments that nodes may be exchanging while the next segment is reduced.
constexpr std::size_t kSegmentsInFlight = 2;
/// Number of chunks of a segment for each column. Several are needed to pipeline the column's ring.
constexpr std::size_t kChunksPerSegment = 4;
/// Up to this number of elements, the time of a transfer between nodes depends on latency and not
/// on bandwidth. Such transfers use the binomial tree or recursive doubling; longer ones use the
/// chain or the ring.
constexpr std::size_t kSmallPart = 8192;

class Hierarchical : public ScheduleWriter {
 public:
  explicit Hierarchical(const Problem& problem)
      : ScheduleWriter(problem),
        nodes_(all_nodes(problem)),
        chunk_(whole_blocks(problem.chunk, problem.coding.block())) {
    node_ = node_of(p_.rank);
    local_ =
        static_cast<std::size_t>(std::ranges::find(nodes_[node_], p_.rank) - nodes_[node_].begin());
    columns_ = nodes_[node_].size();
    for (const std::vector<int>& node : nodes_) columns_ = std::min(columns_, node.size());
  }

  void all_reduce() {
    const std::size_t longest = std::max<std::size_t>(1, chunk_ * kChunksPerSegment * columns_);
    const std::size_t segments = std::max<std::size_t>(1, divide_up(p_.count, longest));
    lay_slots(columns_, {.input = true, .output = true});
    for (std::size_t s = 0; s < segments + kSegmentsInFlight; ++s) {
      if (s < segments) {
        const Extent segment = nth(Extent{0, p_.count}, s, longest);
        reduce_inside(segment);
        if (local_ < columns_) exchange_between(part(segment, local_));
      }
      if (s >= kSegmentsInFlight) {
        share_inside(nth(Extent{0, p_.count}, s - kSegmentsInFlight, longest));
      }
    }
  }

  void broadcast() {
    const std::vector<int> heads = heads_of_nodes();
    const bool is_head = heads[node_] == p_.rank;
    lay_slots(1, {.output = is_head});
    if (is_head) {
      Problem between = like(heads.size(), node_, p_.count);
      between.collective = Collective::broadcast;
      between.root = static_cast<int>(node_of(p_.root));
      embed(between, p_.count <= kSmallPart ? Algorithm::binomial_tree : Algorithm::chain, heads,
            {0, p_.count});
    }
    spread_inside(heads[node_], {0, p_.count});
  }

 private:
  bool alone() const { return nodes_[node_].size() == 1; }

  std::size_t node_of(int rank) const {
    for (std::size_t n = 0; n < nodes_.size(); ++n) {
      if (std::count(nodes_[n].begin(), nodes_[n].end(), rank) != 0) return n;
    }
    return 0;
  }

  /// The rank of each node that exchanges data with other nodes: the root of the broadcast in its
  /// own node, the first rank in every other node.
  std::vector<int> heads_of_nodes() const {
    std::vector<int> heads;
    for (const std::vector<int>& node : nodes_) heads.push_back(node[0]);
    heads[node_of(p_.root)] = p_.root;
    return heads;
  }

  void lay_slots(std::size_t parts, Readable readable) {
    const std::size_t longest = part({0, p_.count}, 0, parts).count;
    piece_ = std::max<std::size_t>(1, std::min({chunk_, p_.window / parts, longest}));
    if (alone()) return;
    builder_.use_window(piece_ * parts);
    builder_.allow_reading(readable);
  }

  /// The part of a segment that a column reduces.
  Extent part(Extent segment, std::size_t column) const { return part(segment, column, columns_); }
  Extent part(Extent segment, std::size_t index, std::size_t parts) const {
    if (!p_.coding) return divided(p_.chunk, segment, parts, index);
    const std::size_t block = p_.coding.block();
    return nth(segment, index, divide_up(divide_up(segment.count, block), parts) * block);
  }
  std::size_t rounds(Extent segment) const {
    return std::max<std::size_t>(1, divide_up(part(segment, 0).count, piece_));
  }
  Extent piece(Extent segment, std::size_t column, std::size_t round) const {
    return nth(part(segment, column), round, piece_);
  }

  /// Performs one round through the window: waits until all ranks of the node have ended the
  /// previous round, publishes, waits for these ranks to publish, and reads.
  template <typename Publish, typename Read>
  void round(Publish publish, Read read) {
    if (last_mark_ > 0) builder_.await(kAllPeers, last_mark_);
    publish();
    builder_.await(kAllPeers, builder_.arrive());
    read();
    last_mark_ = builder_.arrive();
  }

  void reduce_inside(Extent segment) {
    if (alone()) {
      builder_.copy_pieces(input(part(segment, 0)), output(part(segment, 0)));
      return;
    }
    for (std::size_t i = 0; i < rounds(segment); ++i) {
      round(
          [&] {
            for (std::size_t other = 0; other < columns_; ++other) {
              if (other == local_) continue;
              builder_.publish(input(piece(segment, other, i)), other * piece_);
            }
          },
          [&] {
            if (local_ >= columns_) return;
            const Extent own = piece(segment, local_, i);
            builder_.read_fold(input(own), local_ * piece_, output(own), false);
          });
    }
  }

  void share_inside(Extent segment) {
    if (alone()) return;
    for (std::size_t i = 0; i < rounds(segment); ++i) {
      round(
          [&] {
            if (local_ >= columns_) return;
            builder_.publish(output(piece(segment, local_, i)), local_ * piece_);
          },
          [&] {
            for (std::size_t other = 0; other < columns_; ++other) {
              if (other == local_) continue;
              const Region theirs = output(piece(segment, other, i));
              builder_.read(nodes_[node_][other], other * piece_, theirs, theirs);
            }
          });
    }
  }

  void spread_inside(int head, Extent all) {
    if (alone()) return;
    for (std::size_t i = 0; i < std::max<std::size_t>(1, divide_up(all.count, piece_)); ++i) {
      round(
          [&] {
            if (head == p_.rank) builder_.publish(output(nth(all, i, piece_)), 0);
          },
          [&] {
            const Region given = output(nth(all, i, piece_));
            if (head != p_.rank) builder_.read(head, 0, given, given);
          });
    }
  }

  Problem like(std::size_t size, std::size_t rank, std::size_t count) const {
    Problem between;
    between.size = static_cast<int>(size);
    between.rank = static_cast<int>(rank);
    between.count = count;
    between.chunk = chunk_;
    between.in_place = true;
    return between;
  }

  void exchange_between(Extent part) {
    if (part.count == 0) return;
    std::vector<int> ranks;
    for (const std::vector<int>& node : nodes_) ranks.push_back(node[local_]);
    Problem between = like(nodes_.size(), node_, part.count);
    between.coding = p_.coding;
    if (p_.coding) return embed(between, Algorithm::direct, ranks, part);
    embed(between, part.count <= kSmallPart ? Algorithm::recursive_doubling : Algorithm::ring,
          ranks, part);
  }

  /// Appends the schedule of a smaller group. The smaller group's output is the range `place` of
  /// this rank's output.
  void embed(const Problem& problem, Algorithm algorithm, const std::vector<int>& ranks,
             Extent place) {
    const Schedule inner = build(algorithm, problem);
    const Room& room = room_for(inner);
    const auto moved = [&](Region region) {
      region.offset += offset_of(region.space, room, place);
      // The smaller problem is in place, so its input lies in the output.
      if (region.space == Space::input) region.space = Space::output;
      return region;
    };
    std::vector<std::uint32_t> numbers;
    for (Step step : inner.steps) {
      if (is_message(step.kind) || step.kind == StepKind::decode)
        step.peer = ranks[static_cast<std::size_t>(step.peer)];
      step.element += place.offset;
      step.src = moved(step.src);
      step.dst = moved(step.dst);
      numbers.push_back(builder_.append(step));
    }
    for (std::size_t i = 0; i < inner.steps.size(); ++i) {
      for (auto e = inner.successor_begin[i]; e < inner.successor_begin[i + 1]; ++e) {
        builder_.after(numbers[i], numbers[inner.successors[e]]);
      }
    }
  }

  /// Memory for a segment while the nodes exchange it.
  struct Room {
    Extent scratch, coded, sums;
  };

  const Room& room_for(const Schedule& inner) {
    Room& room = rooms_[embedded_++ % rooms_.size()];
    if (room.scratch.count < inner.scratch_count)
      room.scratch = builder_.reserve_scratch(inner.scratch_count);
    if (room.coded.count < inner.coded_count)
      room.coded = {builder_.reserve_coded(inner.coded_count), inner.coded_count};
    if (room.sums.count < inner.sums_count)
      room.sums = {builder_.reserve_sums(inner.sums_count), inner.sums_count};
    return room;
  }

  static std::size_t offset_of(Space space, const Room& room, Extent place) {
    if (space == Space::scratch) return room.scratch.offset;
    if (space == Space::coded) return room.coded.offset;
    return space == Space::sums ? room.sums.offset : place.offset;
  }

  const std::vector<std::vector<int>> nodes_;
  const std::size_t chunk_;
  std::size_t node_ = 0;   // the node of this rank
  std::size_t local_ = 0;  // this rank's index in its node
  std::size_t columns_ = 1;
  std::size_t piece_ = 1;
  std::uint32_t last_mark_ = 0;
  std::array<Room, kSegmentsInFlight + 1> rooms_{};  // used by the segments in turn
  std::size_t embedded_ = 0;
};

/// True if the number of nodes is a power of two. Otherwise some nodes do not take part in
/// exchanges of small parts (recursive_doubling.cpp), so ranks differ in what they do.
bool has_even_exchanges(const Problem& p) { return std::has_single_bit(all_nodes(p).size()); }

bool can_hierarchical(const Problem& p) {
  const bool scatters_blocks = p.collective == Collective::reduce_scatter && p.coding;
  if (p.collective != Collective::all_reduce && p.collective != Collective::broadcast &&
      !scatters_blocks) {
    return false;
  }
  if (p.nodes.empty() || p.window < 2 * static_cast<std::size_t>(p.size)) return false;
  const std::size_t nodes = all_nodes(p).size();
  return nodes > 1 && nodes < static_cast<std::size_t>(p.size);
}

constexpr Writes<Hierarchical> kHierarchicalWrites[] = {
    {Collective::all_reduce, &Hierarchical::all_reduce},
    {Collective::broadcast, &Hierarchical::broadcast},
};

Schedule build_hierarchical(const Problem& p) {
  return can_write<kHierarchicalWrites>(p) ? write<kHierarchicalWrites>(p)
                                           : build_hierarchical_scatter(p);
}

}  // namespace

const AlgorithmEntry kHierarchical{.name = "hierarchical",
                                   .can = can_hierarchical,
                                   .build = build_hierarchical,
                                   .sums_blocks = true,
                                   .is_symmetric = has_even_exchanges,
                                   .in_parts = true,
                                   .window = WindowUse::inside_nodes};

}  // namespace mccl::schedule
