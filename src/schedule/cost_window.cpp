// Estimates for the algorithms that use the windows of nodes.
#include <algorithm>
#include <cmath>

#include "kernels/copy.h"
#include "schedule/cost_terms.h"
#include "schedule/log2_everywhere.h"
#include "schedule/parts.h"

namespace mccl::schedule {
namespace {

// Assumptions (see cost_terms.h), fitted to the 127 results of `mccl bench all` with two to four
// processes on two cores of an EPYC 9004. The brackets after each assumption give the effect of
// halving or doubling each constant: how many of 1274 choices took another algorithm, and by how
// much the worst of these is slower according to the unchanged model.

/// Time that each further neighbour adds to a meeting (kArrival), and fixed time of a piece
/// (kPiece). Both are relative to Facts::window_latency_s. A measurement with two ranks cannot
/// separate the three, and with more ranks than cores a process switch hides them.
/// [2, 22 %; 1, 1 %]
constexpr double kArrival = 0.5;
constexpr double kPiece = 1;
/// Buffers of all ranks that fill up to half of the shared cache stay in it; the other half holds
/// the windows and all other data. Buffers that are this many doublings larger are read from memory
/// entirely. [1, 47 %]
constexpr double kSpill = 2;
/// Slowdown of data that flow from or to a root: ranks work at the same time, but wait for each
/// other's pieces. Among these collectives, only reduce has a choice of algorithms. [16, 82 %]
constexpr double kFlow = 1.2;
/// Slowdown of memory accesses if processes take turns on a core, because they evict each other's
/// data from its caches. [1, 92 %]
constexpr double kCrowdedMemory = 1.3;

}  // namespace

double WindowTerms::turns(double seconds) const {
  return facts_.ranks_per_core > 1 ? seconds * facts_.ranks_per_core : 0;
}

/// With more ranks than cores, a rank must yield its core first, which costs a process switch.
double WindowTerms::meeting() const {
  return facts_.window_latency_s * (1 + kArrival * size_.others) + turns(facts_.switch_s);
}

double WindowTerms::piece() const { return kPiece * facts_.window_latency_s; }

/// Caches and memory work at the same time, so the slower one determines the time.
double WindowTerms::seconds_of(const Handled& handled) const {
  const double copying = handled.copied / facts_.cached_bytes_per_s;
  const double crowd = facts_.ranks_per_core > 1 ? kCrowdedMemory : 1;
  const double from_memory = crowd * handled.of_memory / facts_.memory_bytes_per_s;
  const double share = size_.ranks * handled.held / facts_.shared_cache_bytes;
  const double spilled =
      std::clamp((log2_everywhere(std::max(share, 1e-9)) + 1) / kSpill, 0.0, 1.0);
  return facts_.ranks_per_core * (copying + spilled * std::max(0.0, from_memory - copying));
}

WindowTerms::Cut WindowTerms::cut(Batch batch, double through) const {
  const double piece =
      std::clamp(std::min(size_.chunk, through), 1.0, std::max(1.0, size_.window / 2));
  const double count = std::max(1.0, std::ceil(through / piece));
  const std::size_t most = batch == Batch::some        ? kOneShotBatch
                           : batch == Batch::all_slots ? kTwoShotSlots
                                                       : kOneShotSlots;
  const double parts = batch == Batch::some ? 2 : 1;
  const double slots =
      std::clamp(std::floor(size_.window / piece / parts), 1.0, static_cast<double>(most));
  return {count, std::ceil(count / slots)};
}

Estimate WindowTerms::meeting_at_slots(const Handled& handled, double shots, double through) const {
  const Cut pieces = cut(shots > 1 ? Batch::all_slots : Batch::some, through);
  const double seconds =
      shots * (pieces.batches * meeting() + pieces.count * piece()) + seconds_of(handled);
  // Each piece takes three steps, plus one step per rank, or three per rank with two shots.
  return {seconds, pieces.count * ((shots > 1 ? 3 : 1) * size_.ranks + 3)};
}

Estimate WindowTerms::flow(const Handled& handled, double through) const {
  const Cut pieces = cut(Batch::row, through);
  const double seconds = facts_.window_latency_s + turns(facts_.turn_s) +
                         (pieces.batches - 1) * meeting() + pieces.count * piece() +
                         seconds_of(handled);
  return {seconds, pieces.count * 4};
}

/// seconds_of() multiplies by ranks_per_core, which the division undoes for the root: on shared
/// cores, ranks without work leave the core to the root.
double WindowTerms::evened(double root, double all) const {
  return std::max(root / facts_.ranks_per_core, all / size_.ranks);
}

/// A cache line is read before it is written. In place, the read of the input has already fetched
/// it.
double WindowTerms::written(double bytes) const { return (1 + size_.apart) * bytes; }

double WindowTerms::gathered(double bytes) const {
  return (size_.apart > 0 && size_.bytes >= kernels::kLargeResultBytes ? 1.5 : 2) * bytes;
}

/// Every rank, or only the root, reads all that it needs from the windows of the others.
Estimate one_shot_estimate(Collective collective, const CallSize& size, const WindowTerms& window) {
  const double b = size.bytes, part = size.part, apart = size.apart, ranks = size.ranks;
  const double others = size.others, theirs = others * part;
  switch (collective) {
    case Collective::all_reduce:
      return window.meeting_at_slots({b + others * b, b + window.written(b), b + apart * b}, 1, b);
    case Collective::reduce:
      return window.flow(
          {kFlow * window.evened(others * b, 2 * others * b),
           (others * b + window.written(b)) / ranks + b / ranks, b + apart * b / ranks},
          b);
    case Collective::broadcast:
      return window.flow({kFlow * window.evened(b, ranks * b), 2 * b, b}, b);
    case Collective::reduce_scatter:
      return window.meeting_at_slots({2 * theirs, b + window.written(part), b + apart * part}, 1,
                                     b);
    case Collective::scatter: {
      const double copied = window.evened(theirs + apart * part, 2 * theirs + apart * part);
      return window.flow({kFlow * copied, (theirs + 2 * b) / ranks, (1 + apart) * part}, b);
    }
    case Collective::all_gather:
      return window.meeting_at_slots(
          {theirs + (1 + apart) * part, part + window.gathered(theirs), b}, 1, part);
    case Collective::gather: {
      const double copied = window.evened(theirs + apart * part, 2 * theirs + apart * part);
      return window.flow({copied, (theirs + window.gathered(b)) / ranks, (1 + apart) * part}, part);
    }
    case Collective::all_to_all:
      return window.meeting_at_slots({2 * theirs + part, b + window.gathered(b), 2 * b}, 1, b);
    default:
      return {window.meeting(), 2};
  }
}

Estimate two_shot_estimate(const CallSize& size, const WindowTerms& window) {
  const double b = size.bytes, others = size.others / size.ranks;
  const double copied = (3 * others + 1 / size.ranks) * b;
  return window.meeting_at_slots({copied, b + window.written(b), b + size.apart * b}, 2, b);
}

/// A rank publishes, adds and reads its share of its node's bytes. seconds_of() multiplies
/// Handled::held by the number of ranks, but only the ranks of one node share a cache. So `held` is
/// b * columns / ranks, which makes seconds_of() count one buffer of b bytes per rank of a node.
double inside_nodes_estimate(const CallSize& size, const WindowTerms& window, double columns) {
  const double b = size.bytes;
  return 4 * window.meeting() +
         window.seconds_of({3 * b, b + window.written(b), b * columns / size.ranks});
}

/// One meeting takes place per piece and node. A rank publishes all of its bytes except its share,
/// and adds as many bytes from the other ranks of its node.
double sums_inside_nodes_estimate(const CallSize& size, const WindowTerms& window, double nodes,
                                  double columns) {
  const double b = size.bytes, share = b / columns;
  const double rounds = nodes * std::max(1.0, size.pieces(size.largest));
  return rounds * window.meeting() +
         window.seconds_of({2 * (b - share) + share, b + window.written(share), b});
}

/// Ranks use windows inside the nodes. Between the nodes, a broadcast uses a chain. Any other
/// collective uses recursive doubling or a ring of as many parts as nodes; the estimate assumes the
/// faster one.
Estimate hierarchical_estimate(Collective collective, const CallSize& size, const LinkTerms& link,
                               const WindowTerms& window, double nodes, double columns) {
  const double b = size.bytes, shared = b / columns;
  const double inside = inside_nodes_estimate(size, window, columns);
  if (collective == Collective::broadcast) {
    return {inside + nodes * (link.latency() + link.piece(b)) + link.wire(b), 4 * size.pieces(b)};
  }
  const double rounds = std::ceil(log2_everywhere(nodes));
  const double small = rounds * (link.latency() + link.reduced(shared));
  const double ring = 2 * (nodes - 1) * (link.latency() + link.reduced(shared / nodes));
  return {inside + std::min(small, ring), 8 * size.pieces(b)};
}

}  // namespace mccl::schedule
