// Message sizes as users write and read them, in units of 1024.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace mccl::cli::bench {

/// Parses "8,64K,1M" and ranges: "8:64M:x4" is 8, 32, 128 … up to 64M; without a factor, sizes
/// double. Keeps the order. Throws InvalidArgument.
std::vector<std::size_t> parse_sizes(std::string_view text);

/// Returns the shortest text that parse_sizes reads as this size, such as "64K" or "1000".
std::string text_of_size(std::size_t bytes);

}  // namespace mccl::cli::bench
