// Orders measurements of connections in rounds. Measurements that share a host would disturb each
// other.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace mccl::cli::hosts {

/// Returns indices into `pairs`, grouped by round. Each pair is in one round, and no host is in two
/// pairs of a round. All pairs of n hosts, in both directions, take 2(n - 1) rounds, or 2n if n is
/// odd. Any other set of pairs takes at most twice as many rounds as the busiest host has pairs.
std::vector<std::vector<std::size_t>> rounds_of(std::span<const std::pair<int, int>> pairs);

}  // namespace mccl::cli::hosts
