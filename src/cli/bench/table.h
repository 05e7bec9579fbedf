// The result as people read it: lines that begin with # explain, the others are rows.
#pragma once

#include <string>

#include "cli/bench/result.h"

namespace mccl::cli::bench {

std::string setup_text(const Setup& setup);
std::string bounds_text(const Bounds& bounds, int ranks);
/// The names of the columns, and their units.
std::string heading(Routine routine, bool may_be_rounded = false);
/// One line.
std::string row_text(const Row& row);

/// Five significant places, at most three of them behind the point.
std::string number_text(double value);

}  // namespace mccl::cli::bench
