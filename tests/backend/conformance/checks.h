// What a backend's groups must do, whatever carries out the calls. Every check is run by all ranks
// of a context at once, and fails through GoogleTest or by throwing.
#pragma once

#include <gtest/gtest.h>

#include <ostream>
#include <span>
#include <vector>

#include "mccl/mccl.h"

namespace mccl::conformance {

struct Check {
  const char* name;
  int least;  ///< Ranks that it needs.
  void (*run)(Context& context);

  friend void PrintTo(const Check& check, std::ostream* out) { *out << check.name; }
};

std::span<const Check> collective_checks();
std::span<const Check> reduction_checks();
std::span<const Check> message_checks();
std::span<const Check> group_checks();
/// Of the mpi backend alone.
std::span<const Check> mpi_checks();

}  // namespace mccl::conformance
