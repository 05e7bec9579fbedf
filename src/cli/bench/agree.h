// Collectives of single values, from which every rank of a run gets the same result.
#pragma once

#include <cstdint>

#include "mccl/group.h"

namespace mccl::cli::bench {

/// Options of a collective whose caller waits for it immediately.
inline const CallOptions kBlocking = {.timeout = {}, .caller_waits = true};

/// Returns rank 0's value, on every rank.
std::uint64_t value_of_first(Group& group, std::uint64_t value);
double largest(Group& group, double value);
std::uint64_t sum(Group& group, std::uint64_t value);
void meet(Group& group);

}  // namespace mccl::cli::bench
