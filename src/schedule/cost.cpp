#include "schedule/cost.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "schedule/layout.h"
#include "schedule/nodes.h"
#include "schedule/parts.h"

namespace mccl::schedule {
namespace {

/// A message costs a rank this part of the latency in work; the rest is waiting, which overlaps.
constexpr double kMessageWork = 0.125;
/// Flows that meet at a rank get in each other's way: loss per flow after the first, and at most.
constexpr double kCrowding = 0.03;
constexpr double kMostCrowding = 0.2;
/// Pieces above the first size are out of cache when the next stage wants them; so are operands of
/// a fold above the second.
constexpr double kCachedPiece = 512 << 10;
constexpr double kCachedOperands = 4 << 20;
constexpr double kUncachedPiece = 1.1;
constexpr double kUncachedOperands = 2.0;
/// What is kept in scratch to be passed on costs this part of a transfer more.
constexpr double kKeeping = 0.5;
/// Buffers that together fill so many doublings more than half of the shared cache come from memory
/// entirely; half of the shared cache leaves room for them, the windows and everything else.
constexpr double kSpill = 2;
/// Where data flow from or to a root, ranks work at the same time, but wait for each other's
/// pieces.
constexpr double kFlow = 1.2;
/// Processes that take turns on a core have their data further out of its caches.
constexpr double kCrowdedMemory = 1.3;
/// Results of at least so many bytes are written to memory without being read first.
constexpr double kStreamed = 8 << 20;
/// What a piece through the window costs beside its bytes; what one more neighbour adds to a
/// meeting, in parts of its latency; and the switch to another process of the same core.
constexpr double kWindowPiece = 0.1e-6;
constexpr double kArrival = 0.5;
constexpr double kSwitch = 1.5e-6;
/// A call in which a rank waits for nobody, where ranks take turns on a core.
constexpr double kTurn = 0.25e-6;

bool shares_node(const Problem& p) {
  return !p.nodes.empty() &&
         std::all_of(p.nodes.begin(), p.nodes.end(), [&](int node) { return node == p.nodes[0]; });
}

/// A rank's sends share its bandwidth, and so do its receives; the two directions do not.
class Model {
 public:
  Model(const Problem& p, std::size_t element_bytes, const Facts& facts)
      : n_(p.size),
        log_(std::bit_width(static_cast<unsigned>(p.size - 1))),
        facts_(facts),
        shared_(shares_node(p)),
        latency_(shared_ ? facts.shared_latency_s : facts.latency_s),
        apart_(p.in_place ? 0 : 1),
        window_(static_cast<double>(p.window) * static_cast<double>(element_bytes)),
        reduce_(1 / facts.reduce_bytes_per_s),
        chunk_(static_cast<double>(p.chunk) * static_cast<double>(element_bytes)),
        work_(kMessageWork * latency_),
        crowd_(1 + std::min(kMostCrowding, kCrowding * std::max(0, p.size - 2))),
        power_of_two_(std::has_single_bit(static_cast<unsigned>(p.size))) {
    const auto element = static_cast<double>(element_bytes);
    const bool exchanges = p.collective == Collective::all_to_all && !p.even;
    const bool in_parts = !p.counts.empty() && !exchanges;
    bytes_ = element * static_cast<double>(in_parts ? total(p.counts) : p.count);
    if (exchanges) bytes_ = chunk_ * n_;
    part_ = bytes_ / n_;
    largest_ =
        in_parts
            ? element * static_cast<double>(*std::max_element(p.counts.begin(), p.counts.end()))
            : part_;
    const bool cached = std::min(chunk_, std::max(bytes_, 1.0)) <= kCachedPiece;
    byte_ = (cached ? 1 : kUncachedPiece) /
            (shared_ ? facts.shared_bytes_per_s / facts.ranks_per_core : facts.bytes_per_s);
  }

  Estimate alone() const { return {bytes_ * byte_, pieces(bytes_)}; }

  Estimate direct(Collective collective) const {
    const double others = n_ - 1;
    switch (collective) {
      case Collective::all_reduce:
        return {latency_ + others * wire(bytes_) * crowd_ + fold(n_ * bytes_),
                pieces(bytes_) * 2 * n_};
      case Collective::reduce:
        return {latency_ + others * wire(bytes_) * crowd_ + fold(n_ * bytes_),
                pieces(bytes_) * (n_ + 1)};
      case Collective::broadcast:
        return {latency_ + others * wire(bytes_), pieces(bytes_) * others};
      case Collective::reduce_scatter:
        return {latency_ + others * wire(part_) * crowd_ + fold(bytes_), pieces(largest_) * 2 * n_};
      case Collective::scatter:
        return {latency_ + others * wire(part_), pieces(largest_) * n_};
      case Collective::gather:
        return {latency_ + others * wire(part_) * crowd_, pieces(largest_) * n_};
      case Collective::all_gather:
      case Collective::all_to_all:
        return {latency_ + others * wire(part_) * crowd_, pieces(largest_) * 2 * n_};
      default:
        return {latency_ + others * work_, 2 * others};
    }
  }

  Estimate ring(Collective collective, int lanes) const {
    const double phases = n_ - 1;
    const double steps = pieces(largest_ / lanes) * lanes * 2 * phases;
    const Estimate gather{phases * phase(wire(part_), piece(part_), lanes), steps};
    const Estimate scatter{phases * phase(reduced(part_), reduced_piece(part_), lanes), steps};
    if (collective == Collective::all_gather) {
      return {gather.seconds, steps + pieces(largest_)};
    }
    if (collective == Collective::reduce_scatter) return scatter;
    return {scatter.seconds + gather.seconds, 2 * steps};
  }

  Estimate pairwise(Collective collective) const {
    const double others = n_ - 1;
    const double scatter =
        phase(others * reduced(part_) * crowd_, others * reduced_piece(part_), 1);
    const double gather = phase(others * wire(part_) * crowd_, others * piece(part_), 1);
    const double steps = pieces(largest_) * 2 * others;
    if (collective == Collective::reduce_scatter) return {scatter, steps};
    if (collective == Collective::all_reduce) return {scatter + gather, 2 * steps};
    return {others * (latency_ / 2 + wire(part_)), steps + pieces(largest_)};
  }

  Estimate recursive_doubling(Collective collective) const {
    if (collective == Collective::all_gather) {
      double seconds = 0;
      double steps = pieces(largest_);
      for (int size = 1; size < n_; size *= 2) {
        const double group = size;
        seconds += latency_ + wire(group * part_);
        steps += 2 * pieces(group * largest_);
      }
      return {seconds, steps};
    }
    const double rounds = power_of_two_ ? log_ : log_ - 1;
    double seconds = rounds * (latency_ + reduced(bytes_));
    if (!power_of_two_) seconds += 2 * latency_ + reduced(bytes_) + wire(bytes_);
    return {seconds, pieces(bytes_) * (2 * rounds + 2)};
  }

  /// `depth` hops from the root; each rank exchanges every piece with `degree` others.
  Estimate tree(Collective collective, double depth, double degree) const {
    const double first = depth * (latency_ + piece(bytes_));
    const double first_reduced = depth * (latency_ + reduced_piece(bytes_));
    const double steps = pieces(bytes_) * (degree + 1);
    if (collective == Collective::broadcast) {
      return {first + degree * (wire(bytes_) - piece(bytes_)), steps};
    }
    const double rest = reduced(bytes_) - reduced_piece(bytes_);
    if (collective == Collective::reduce) return {first_reduced + degree * rest, steps};
    const double both = degree > 1 || n_ == 2 ? degree : 2;  // in a chain: up and down
    return {first + first_reduced + both * rest, 2 * steps};
  }

  Estimate binomial_tree(Collective collective) const {
    if (collective != Collective::gather && collective != Collective::scatter) {
      return tree(collective, log_, log_);
    }
    const double largest_subtree = 1 << (log_ - 1);
    double seconds = kKeeping * (largest_subtree - 1) * part_ * byte_;
    for (int level = 0; level < log_; ++level) {
      seconds += latency_ + wire(part_ * std::min<double>(1 << level, n_ - (1 << level)));
    }
    return {seconds, pieces(bytes_) + 2 * n_};
  }

  Estimate chain(Collective collective) const { return tree(collective, n_ - 1, 1); }

  /// Everyone, or the root, reads everything it needs.
  Estimate one_shot(Collective collective) const {
    const double b = bytes_, part = part_, others = n_ - 1, theirs = others * part;
    switch (collective) {
      case Collective::all_reduce:
        return through_window({b + others * b, b + written(b), b + apart_ * b}, 1, b);
      case Collective::reduce:
        return flow_through_window({kFlow * flow(others * b, 2 * others * b),
                                    (others * b + written(b)) / n_ + b / n_, b + apart_ * b / n_},
                                   b);
      case Collective::broadcast:
        return flow_through_window({kFlow * flow(b, n_ * b), 2 * b, b}, b);
      case Collective::reduce_scatter:
        return through_window({2 * theirs, b + written(part), b + apart_ * part}, 1, b);
      case Collective::scatter:
        return flow_through_window(
            {kFlow * flow(theirs + apart_ * part, 2 * theirs + apart_ * part),
             (theirs + 2 * b) / n_, (1 + apart_) * part},
            b);
      case Collective::all_gather:
        return through_window({theirs + (1 + apart_) * part, part + gathered(theirs), b}, 1, part);
      case Collective::gather:
        return flow_through_window({flow(theirs + apart_ * part, 2 * theirs + apart_ * part),
                                    (theirs + gathered(b)) / n_, (1 + apart_) * part},
                                   part);
      case Collective::all_to_all:
        return through_window({2 * theirs + part, b + gathered(b), 2 * b}, 1, b);
      default:
        return {meeting(), 2};
    }
  }

  Estimate two_shot() const {
    const double b = bytes_, others = (n_ - 1) / n_;
    const double copied = (3 * others + 1 / n_) * b;
    return through_window({copied, b + written(b), b + apart_ * b}, 2, b);
  }

  /// Inside the nodes through windows, between them a ring of as many parts as nodes.
  Estimate hierarchical(Collective collective, double nodes, double columns) const {
    const double shared = bytes_ / columns;
    // Of its node's bytes a rank publishes, adds and reads its share; a node holds them once a
    // rank.
    const double inside =
        4 * meeting() + seconds_of({3 * bytes_, bytes_ + written(bytes_), bytes_ * columns / n_});
    if (collective == Collective::broadcast) {
      return {inside + nodes * (latency_ + piece(bytes_)) + wire(bytes_), 4 * pieces(bytes_)};
    }
    const double rounds = std::ceil(std::log2(nodes));
    const double small = rounds * (latency_ + reduced(shared));
    const double ring = 2 * (nodes - 1) * (latency_ + reduced(shared / nodes));
    return {inside + std::min(small, ring), 8 * pieces(bytes_)};
  }

  Estimate dissemination() const { return {log_ * (latency_ + work_), 2.0 * log_}; }

 private:
  double pieces(double bytes) const { return bytes > 0 ? std::ceil(bytes / chunk_) : 0; }
  double wire(double bytes) const { return std::max(1.0, pieces(bytes)) * work_ + bytes * byte_; }
  double reduced(double bytes) const { return wire(bytes) + bytes * reduce_; }
  double piece(double bytes) const { return work_ + std::min(bytes, chunk_) * byte_; }
  double reduced_piece(double bytes) const {
    return piece(bytes) + std::min(bytes, chunk_) * reduce_;
  }
  double fold(double bytes) const {
    const double operands = n_ * std::min(chunk_, bytes / n_);
    return bytes * reduce_ * (operands <= kCachedOperands ? 1 : kUncachedOperands);
  }

  /// All ranks of a node wait for each other. With more ranks than cores somebody has to give its
  /// core away first.
  double meeting() const {
    const double switches = facts_.ranks_per_core > 1 ? kSwitch * facts_.ranks_per_core : 0;
    return facts_.window_latency_s * (1 + kArrival * (n_ - 1)) + switches;
  }

  /// What the busiest rank does with bytes.
  struct Handled {
    double copied;     ///< Copied or added, between its buffers and the windows.
    double of_memory;  ///< Read and written of the buffers, where no cache holds them.
    double held;       ///< The buffers themselves.
  };

  /// What each rank copies, if it were equal, of what the root and all ranks together do: on cores
  /// that they share, nobody waits for the root while it has work of its own.
  double flow(double root, double all) const {
    return std::max(root / facts_.ranks_per_core, all / n_);
  }

  /// Bytes of memory that writing takes, of results where the input is not: a line is read before
  /// it is written.
  double written(double bytes) const { return (1 + apart_) * bytes; }
  double gathered(double bytes) const {
    return (apart_ > 0 && bytes_ >= kStreamed ? 1.5 : 2) * bytes;
  }

  /// `through` bytes go through each slot's `shots` meetings.
  Estimate through_window(const Handled& handled, double shots, double through) const {
    const Pieces cut = pieces_through_window(shots > 1 ? Batch::all_slots : Batch::some, through);
    const double seconds =
        shots * cut.batches * meeting() + cut.count * shots * kWindowPiece + seconds_of(handled);
    return {seconds, cut.count * shots * 4};
  }

  /// The same where the root, or the others, may be some calls ahead: nobody meets anybody but
  /// where slots come around again.
  Estimate flow_through_window(const Handled& handled, double through) const {
    const Pieces cut = pieces_through_window(Batch::row, through);
    const double turns = facts_.ranks_per_core > 1 ? kTurn * facts_.ranks_per_core : 0;
    const double seconds = facts_.window_latency_s + turns + (cut.batches - 1) * meeting() +
                           cut.count * kWindowPiece + seconds_of(handled);
    return {seconds, cut.count * 4};
  }

  struct Pieces {
    double count;
    double batches;
  };
  /// How the schedules use their slots: at most four of their halves at a time, all, or in a row.
  enum class Batch { some, all_slots, row };
  Pieces pieces_through_window(Batch batch, double through) const {
    const double piece = std::clamp(std::min(chunk_, through), 1.0, std::max(1.0, window_ / 2));
    const double count = std::max(1.0, std::ceil(through / piece));
    const std::size_t most = batch == Batch::some        ? kOneShotBatch
                             : batch == Batch::all_slots ? kTwoShotSlots
                                                         : kOneShotSlots;
    const double parts = batch == Batch::some ? 2 : 1;
    const double slots =
        std::clamp(std::floor(window_ / piece / parts), 1.0, static_cast<double>(most));
    return {count, std::ceil(count / slots)};
  }

  /// Caches and memory work at the same time; the slower one counts.
  double seconds_of(const Handled& handled) const {
    const double copying = handled.copied / facts_.cached_bytes_per_s;
    const double crowd = facts_.ranks_per_core > 1 ? kCrowdedMemory : 1;
    const double from_memory = crowd * handled.of_memory / facts_.memory_bytes_per_s;
    const double share = n_ * handled.held / facts_.shared_cache_bytes;
    const double spilled = std::clamp((std::log2(std::max(share, 1e-9)) + 1) / kSpill, 0.0, 1.0);
    return facts_.ranks_per_core * (copying + spilled * std::max(0.0, from_memory - copying));
  }

  /// A phase of all segments: each is as long as its work, or as one piece needs to pass.
  double phase(double work, double first_piece, int lanes) const {
    const double per_lane = pieces(largest_ / lanes);
    const double segments =
        std::max(1.0, std::ceil(per_lane / static_cast<double>(kPiecesPerPhase)));
    return segments * std::max(work / segments, latency_ + first_piece);
  }

  const double n_;
  const int log_;  // rounded up
  const Facts& facts_;
  const bool shared_;  // all ranks are on one node
  const double latency_;
  const double apart_;   // input and output are 0: the same memory, 1: not
  const double window_;  // bytes
  const double reduce_;  // seconds per byte
  const double chunk_;   // bytes
  const double work_;    // seconds per message
  const double crowd_;
  const bool power_of_two_;
  double bytes_ = 0;
  double part_ = 0;
  double largest_ = 0;
  double byte_ = 0;  // seconds per byte
};

}  // namespace

Estimate estimate(Algorithm algorithm, const Problem& p, std::size_t element_bytes,
                  const Facts& facts) {
  const Model model(p, element_bytes, facts);
  if (p.size == 1) return model.alone();
  switch (algorithm) {
    case Algorithm::direct:
      return model.direct(p.collective);
    case Algorithm::ring:
      return model.ring(p.collective, 1);
    case Algorithm::ring_both:
      return model.ring(p.collective, 2);
    case Algorithm::recursive_doubling:
      return model.recursive_doubling(p.collective);
    case Algorithm::binomial_tree:
      return model.binomial_tree(p.collective);
    case Algorithm::chain:
      return model.chain(p.collective);
    case Algorithm::pairwise:
      return model.pairwise(p.collective);
    case Algorithm::dissemination:
      return model.dissemination();
    case Algorithm::one_shot:
      return model.one_shot(p.collective);
    case Algorithm::two_shot:
      return model.two_shot();
    case Algorithm::hierarchical: {
      const auto nodes = all_nodes(p);
      std::size_t columns = nodes[0].size();
      for (const auto& node : nodes) columns = std::min(columns, node.size());
      return model.hierarchical(p.collective, static_cast<double>(nodes.size()),
                                static_cast<double>(columns));
    }
  }
  return {};
}

double cost(Algorithm algorithm, const Problem& problem, std::size_t element_bytes,
            const Facts& facts) {
  return estimate(algorithm, problem, element_bytes, facts).seconds;
}

}  // namespace mccl::schedule
