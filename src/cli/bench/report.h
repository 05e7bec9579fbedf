// Writes the result for other programs.
#pragma once

#include <string>

#include "cli/bench/result.h"

namespace mccl::cli::bench {

/// Returns one JSON object. Times are in microseconds, rates in GB/s. A figure that does not exist
/// is null.
std::string to_json(const Result& result);
/// Returns the object under "costs" in that JSON, on one line.
std::string costs_json(const Costs& costs);
/// Returns CSV: a heading, and a line for each half of a row (out of place and in place).
std::string to_csv(const Result& result);

/// Writes the file. Throws Error if that fails; the message contains the path.
void write_file(const std::string& path, const std::string& text);
/// Throws InvalidArgument if the file cannot be written. Called before the measurements, which may
/// take minutes.
void check_writable(const std::string& flag, const std::string& path);

}  // namespace mccl::cli::bench
