// Prints the result for users. Lines that begin with # are explanations; the others are rows.
#pragma once

#include <string>
#include <string_view>

#include "cli/bench/result.h"

namespace mccl::cli::bench {

std::string setup_text(const Setup& setup);
std::string bounds_text(const Bounds& bounds, int ranks);
/// Returns the names of the columns, and their units.
std::string heading(Routine routine, bool may_be_rounded = false);
/// Returns one line.
std::string row_text(const Row& row);
/// Returns the calls that the requested algorithm cannot do, separated by commas. Empty if there
/// are none.
std::string calls_refused(const std::vector<Row>& rows);
/// Returns a line for each row that has Sent: the bytes with the codec and without.
std::string sent_text(const std::vector<Row>& rows, std::string_view codec);

/// Formats with up to five significant digits, at most three of them after the decimal point.
std::string number_text(double value);

}  // namespace mccl::cli::bench
