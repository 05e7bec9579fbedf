// What all ranks of a run know alike.
#pragma once

#include <cstdint>

#include "mccl/group.h"

namespace mccl::cli::bench {

/// Of a call that its caller waits for.
inline const CallOptions kBlocking = {.timeout = {}, .caller_waits = true};

/// Rank 0's value, on every rank.
std::uint64_t value_of_first(Group& group, std::uint64_t value);
double largest(Group& group, double value);
std::uint64_t sum(Group& group, std::uint64_t value);
void meet(Group& group);

}  // namespace mccl::cli::bench
