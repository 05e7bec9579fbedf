// Sizes, times and rates as users write and read them. Units of sizes are powers of 1024, and those
// of rates are decimal.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

namespace mccl::cli {

/// Parses a time such as "15us" or "0.2 ms", from a nanosecond to a minute, in seconds. Throws
/// InvalidArgument for any other text; the message contains `flag`.
double parse_seconds(std::string_view flag, std::string_view text);

/// Parses a rate such as "10Gbit" or "1.25GB/s", in bytes per second. Throws like parse_seconds().
double parse_rate(std::string_view flag, std::string_view text);

/// Returns the shortest text of this size, such as "64K" or "1000".
std::string text_of_size(std::size_t bytes);
std::string text_of_seconds(double seconds);
/// Returns text such as "1.25 GB/s".
std::string text_of_rate(double bytes_per_s);

/// Formats the local time with conversions of strftime(3), such as "%H:%M:%S".
std::string local_time_text(std::chrono::system_clock::time_point time, const char* format);

/// Text for a column of a table: up to five significant digits, at most three after the point.
std::string number_text(double value);
/// Text for a column of a table.
std::string rate_text(double gbs);

}  // namespace mccl::cli
