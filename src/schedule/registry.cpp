#include <fmt/format.h>

#include <bit>

#include "mccl/error.h"
#include "schedule/algorithms.h"
#include "schedule/layout.h"
#include "schedule/nodes.h"

namespace mccl::schedule {
namespace {

template <typename... Collectives>
constexpr bool one_of(Collective collective, Collectives... of) {
  return ((collective == of) || ...);
}

}  // namespace

std::string_view name_of(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::direct:
      return "direct";
    case Algorithm::ring:
      return "ring";
    case Algorithm::ring_both:
      return "ring_both";
    case Algorithm::recursive_doubling:
      return "recursive_doubling";
    case Algorithm::binomial_tree:
      return "binomial_tree";
    case Algorithm::chain:
      return "chain";
    case Algorithm::pairwise:
      return "pairwise";
    case Algorithm::dissemination:
      return "dissemination";
    case Algorithm::one_shot:
      return "one_shot";
    case Algorithm::two_shot:
      return "two_shot";
    case Algorithm::hierarchical:
      return "hierarchical";
    case Algorithm::cable_tree:
      return "cable_tree";
  }
  return "unknown";
}

bool can(Algorithm algorithm, const Problem& p) {
  using enum Collective;
  const Collective c = p.collective;
  if (one_of(c, send, recv)) return false;
  if (p.coding && p.size > 1)
    return one_of(c, all_reduce, reduce_scatter) &&
           (algorithm == Algorithm::direct ||
            (algorithm == Algorithm::hierarchical && can_hierarchical(p)));
  if (algorithm == Algorithm::direct) return true;
  if (p.size < 2) return false;
  switch (algorithm) {
    case Algorithm::direct:
      return true;
    case Algorithm::ring:
      return one_of(c, all_reduce, all_gather, reduce_scatter);
    case Algorithm::ring_both:  // with two ranks both directions are the same
      return p.size > 2 && one_of(c, all_reduce, all_gather, reduce_scatter);
    case Algorithm::recursive_doubling:
      return c == all_reduce ||
             (c == all_gather && std::has_single_bit(static_cast<unsigned>(p.size)));
    case Algorithm::binomial_tree:
      return one_of(c, all_reduce, broadcast, reduce, gather, scatter);
    case Algorithm::chain:
      return one_of(c, all_reduce, broadcast, reduce);
    case Algorithm::pairwise:
      return one_of(c, all_reduce, reduce_scatter, all_to_all);
    case Algorithm::dissemination:
      return c == barrier;
    case Algorithm::one_shot:
      return shares_window(p) && (c != all_to_all || p.even);
    case Algorithm::two_shot:
      return shares_window(p) && one_of(c, all_reduce, reduce);
    case Algorithm::hierarchical:
      return can_hierarchical(p);
    case Algorithm::cable_tree:
      return !p.tree.empty() && c != all_to_all;
  }
  return false;
}

Schedule build(Algorithm algorithm, const Problem& p) {
  check(p);
  if (!can(algorithm, p)) {
    throw InvalidArgument(
        fmt::format("schedule: the algorithm {} does not support this call among {} ranks",
                    name_of(algorithm), p.size));
  }
  if (p.size == 1) return build_alone(p);
  if (p.coding && algorithm == Algorithm::direct) return build_coded(p);
  switch (algorithm) {
    case Algorithm::direct:
      return build_direct(p);
    case Algorithm::ring:
      return build_ring(p, false);
    case Algorithm::ring_both:
      return build_ring(p, true);
    case Algorithm::recursive_doubling:
      return build_recursive_doubling(p);
    case Algorithm::binomial_tree:
      return build_binomial_tree(p);
    case Algorithm::chain:
      return build_chain(p);
    case Algorithm::pairwise:
      return build_pairwise(p);
    case Algorithm::dissemination:
      return build_dissemination(p);
    case Algorithm::one_shot:
      return build_one_shot(p);
    case Algorithm::two_shot:
      return build_two_shot(p);
    case Algorithm::hierarchical:
      return build_hierarchical(p);
    case Algorithm::cable_tree:
      return build_cable_tree(p);
  }
  return {};
}

}  // namespace mccl::schedule
