// Times and rates as users write and read them. Units of rates are decimal.
#pragma once

#include <string>
#include <string_view>

namespace mccl::cli::plan {

/// Parses a time such as "15us" or "0.2 ms", from a nanosecond to a minute. Returns seconds. Throws
/// InvalidArgument for any other text; the message contains `flag`.
double parse_seconds(std::string_view flag, std::string_view text);

/// Parses a rate such as "10Gbit" or "1.25GB/s". Returns bytes per second. Throws InvalidArgument
/// for any other text; the message contains `flag`.
double parse_rate(std::string_view flag, std::string_view text);

std::string text_of_seconds(double seconds);
/// Returns the rate in GB/s.
std::string text_of_rate(double bytes_per_s);

}  // namespace mccl::cli::plan
