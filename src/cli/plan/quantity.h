// Times and rates as people write and read them. Units of rates are decimal.
#pragma once

#include <string>
#include <string_view>

namespace mccl::cli::plan {

/// "15us", "0.2 ms": seconds, from a nanosecond to a minute. Throws InvalidArgument that names the
/// flag.
double parse_seconds(std::string_view flag, std::string_view text);

/// "10Gbit", "1.25GB/s": bytes per second. Throws InvalidArgument that names the flag.
double parse_rate(std::string_view flag, std::string_view text);

std::string text_of_seconds(double seconds);
/// Bytes per second in GB/s.
std::string text_of_rate(double bytes_per_s);

}  // namespace mccl::cli::plan
