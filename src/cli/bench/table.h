// The result as people read it: lines that begin with # explain, the others are rows.
#pragma once

#include <string>
#include <string_view>

#include "cli/bench/result.h"

namespace mccl::cli::bench {

std::string setup_text(const Setup& setup);
std::string bounds_text(const Bounds& bounds, int ranks);
/// The names of the columns, and their units.
std::string heading(Routine routine, bool may_be_rounded = false);
/// One line.
std::string row_text(const Row& row);
/// The calls that the algorithm that was asked for cannot do, with commas; empty: none.
std::string calls_refused(const std::vector<Row>& rows);
/// What went in a codec, and what would have gone: a line for each of the rows that know it.
std::string sent_text(const std::vector<Row>& rows, std::string_view codec);

/// Five significant places, at most three of them behind the point.
std::string number_text(double value);

}  // namespace mccl::cli::bench
