// The algorithms, one file each. A function writes the schedule of every collective that its
// algorithm can perform; registry.cpp lists which these are.
#pragma once

#include "schedule/schedule.h"

namespace mccl::schedule {

Schedule build_alone(const Problem& problem);  ///< Used for groups of one rank.
Schedule build_direct(const Problem& problem);
Schedule build_ring(const Problem& problem, bool both_ways);
Schedule build_recursive_doubling(const Problem& problem);
Schedule build_binomial_tree(const Problem& problem);
Schedule build_chain(const Problem& problem);
Schedule build_pairwise(const Problem& problem);
Schedule build_dissemination(const Problem& problem);
Schedule build_one_shot(const Problem& problem);
Schedule build_two_shot(const Problem& problem);
Schedule build_hierarchical(const Problem& problem);
Schedule build_hierarchical_scatter(const Problem& problem);  ///< Used for coded sums.
Schedule build_cable_tree(const Problem& problem);
Schedule build_coded(const Problem& problem);

bool can_hierarchical(const Problem& problem);

}  // namespace mccl::schedule
