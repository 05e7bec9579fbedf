// When which connection is timed: hosts that are busy would measure each other.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace mccl::cli::hosts {

/// Numbers of pairs, by round. Each pair has one round, and no host two pairs in a round. All pairs
/// of n hosts, both ways, take 2(n - 1) rounds, or 2n where n is odd; any other pairs at most twice
/// as many rounds as a host has pairs.
std::vector<std::vector<std::size_t>> rounds_of(std::span<const std::pair<int, int>> pairs);

}  // namespace mccl::cli::hosts
