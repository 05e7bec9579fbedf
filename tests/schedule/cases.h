// Problems of whole groups, for the tests of schedules.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "schedule/schedule.h"

namespace mccl::schedule {

inline constexpr Algorithm kAlgorithms[] = {
    Algorithm::direct,        Algorithm::ring,
    Algorithm::ring_both,     Algorithm::recursive_doubling,
    Algorithm::binomial_tree, Algorithm::chain,
    Algorithm::pairwise,      Algorithm::dissemination,
    Algorithm::one_shot,      Algorithm::two_shot,
    Algorithm::hierarchical,
};

/// Which ranks share a node.
enum class Placement { apart, one_node, pairs, uneven, interleaved };
inline constexpr Placement kPlacements[] = {Placement::apart, Placement::one_node, Placement::pairs,
                                            Placement::uneven, Placement::interleaved};

inline std::vector<int> nodes_of(Placement placement, int size) {
  std::vector<int> nodes;
  for (int r = 0; r < size && placement != Placement::apart; ++r) {
    nodes.push_back(placement == Placement::one_node      ? 0
                    : placement == Placement::pairs       ? r / 2
                    : placement == Placement::interleaved ? r % 3
                                                          : (r < 3   ? 0
                                                             : r < 4 ? 1
                                                                     : r / 4 + 1));
  }
  return nodes;
}

inline constexpr Collective kCollectives[] = {
    Collective::all_reduce,     Collective::broadcast,  Collective::reduce,
    Collective::all_gather,     Collective::gather,     Collective::scatter,
    Collective::reduce_scatter, Collective::all_to_all, Collective::barrier,
};

inline bool is_rooted(Collective c) {
  return c == Collective::broadcast || c == Collective::reduce || c == Collective::gather ||
         c == Collective::scatter;
}

inline bool has_parts(Collective c) {
  return c == Collective::all_gather || c == Collective::gather || c == Collective::scatter ||
         c == Collective::reduce_scatter;
}

/// One call of a group, as rank 0 sees it.
struct Case {
  Collective collective = Collective::all_reduce;
  int size = 1;
  int root = 0;
  std::size_t count = 0;                 ///< all_reduce, broadcast, reduce
  std::vector<std::size_t> counts = {};  ///< gathers and scatters
  std::size_t chunk = 1;
  bool in_place = false;
  bool mixed = false;  ///< Only odd ranks are in place.
  Placement placement = Placement::apart;
  std::size_t window = 0;
  Codec codec = Codec::none;
};

/// Returns the placements to test. Algorithms without a window ignore the placement of ranks.
inline std::vector<Placement> placements(Algorithm algorithm) {
  if (algorithm == Algorithm::one_shot || algorithm == Algorithm::two_shot) {
    return {Placement::one_node};
  }
  if (algorithm != Algorithm::hierarchical) return {Placement::apart};
  return {Placement::pairs, Placement::uneven, Placement::interleaved};
}

/// Returns how many elements rank `from` sends to rank `to` in an all_to_all of about `count`
/// elements per pair.
inline std::size_t exchange_count(std::size_t count, bool uneven, int from, int to) {
  return uneven
             ? (static_cast<std::size_t>(from) * 7 + static_cast<std::size_t>(to) * 3) % (count + 1)
             : count;
}

inline Problem problem_of(const Case& c, int rank) {
  Problem p;
  p.collective = c.collective;
  p.rank = rank;
  p.size = c.size;
  p.root = c.root;
  p.count = c.count;
  p.counts = c.counts;
  p.chunk = c.chunk;
  p.nodes = nodes_of(c.placement, c.size);
  p.window = c.window;
  p.coding = coding_of({c.codec, 0.01}, c.size);
  p.in_place = c.mixed ? rank % 2 == 1 : c.in_place;
  if (c.collective == Collective::all_to_all) {
    const bool uneven = c.mixed;
    p.even = !uneven;
    p.in_place = false;
    for (int peer = 0; peer < c.size; ++peer) {
      p.counts.push_back(exchange_count(c.count, uneven, rank, peer));
      p.recv_counts.push_back(exchange_count(c.count, uneven, peer, rank));
    }
    p.count = 0;
  }
  return p;
}

inline std::vector<Problem> problems_of(const Case& c) {
  std::vector<Problem> problems;
  for (int rank = 0; rank < c.size; ++rank) problems.push_back(problem_of(c, rank));
  return problems;
}

inline std::vector<Schedule> build_all(Algorithm algorithm, const std::vector<Problem>& problems) {
  std::vector<Schedule> schedules;
  for (const Problem& p : problems) schedules.push_back(build(algorithm, p));
  return schedules;
}

inline std::string describe(Algorithm algorithm, const Case& c) {
  return fmt::format(
      "{} for collective {}, size {}, root {}, count {}, counts {}, chunk {}, "
      "placement {}, window {}{}, codec {}",
      name_of(algorithm), static_cast<int>(c.collective), c.size, c.root, c.count,
      fmt::join(c.counts, " "), c.chunk, static_cast<int>(c.placement), c.window,
      c.mixed      ? ", mixed"
      : c.in_place ? ", in place"
                   : "",
      name_of(c.codec));
}

/// Returns parts of about `count` elements. Shapes: 0 even, 1 uneven with zeros, 2 all at the last
/// rank.
inline std::vector<std::size_t> parts_of(int size, std::size_t count, int shape) {
  std::vector<std::size_t> counts(size, count);
  for (int r = 0; r < size && shape != 0; ++r) {
    counts[r] = shape == 1 ? (r % 3 == 1 ? 0 : (count * (r % 4 + 1)) / 3) : 0;
  }
  if (shape == 2) counts.back() = count;
  return counts;
}

/// Returns a call of about `bytes` bytes of f32, in equal parts.
inline Case call(Collective collective, int size, std::size_t bytes) {
  Case c{.collective = collective, .size = size, .count = bytes / 4};
  if (has_parts(collective)) c.counts = parts_of(size, bytes / 4 / size, 0);
  return c;
}

}  // namespace mccl::schedule
