// Checks that the groups of every backend must pass. All ranks of a context run each check at the
// same time. A check fails through GoogleTest or by throwing.
#pragma once

#include <gtest/gtest.h>

#include <ostream>
#include <span>
#include <vector>

#include "mccl/mccl.h"

namespace mccl::conformance {

struct Check {
  const char* name;
  int least;  ///< Minimum number of ranks that the check needs.
  void (*run)(Context& context);

  friend void PrintTo(const Check& check, std::ostream* out) { *out << check.name; }
};

std::span<const Check> collective_checks();
std::span<const Check> reduction_checks();
std::span<const Check> message_checks();
std::span<const Check> group_checks();
/// Checks for the mpi backend only.
std::span<const Check> mpi_checks();

}  // namespace mccl::conformance
