// The result as programs read it.
#pragma once

#include <string>

#include "cli/bench/result.h"

namespace mccl::cli::bench {

/// One object. Times are in microseconds, rates in GB/s; null where there is no such figure.
std::string to_json(const Result& result);
/// What is under "costs" there, on one line.
std::string costs_json(const Costs& costs);
/// A heading and a line for each half of a row.
std::string to_csv(const Result& result);

/// Throws Error that names the file.
void write_file(const std::string& path, const std::string& text);
/// Throws InvalidArgument now rather than after minutes of measuring.
void check_writable(const std::string& flag, const std::string& path);

}  // namespace mccl::cli::bench
