// Sizes of messages as people write and read them, in units of 1024.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace mccl::cli::bench {

/// "8,64K,1M" and ranges: "8:64M:x4" is 8, 32, 128 … up to 64M; without a factor it doubles. In the
/// order given. Throws InvalidArgument.
std::vector<std::size_t> parse_sizes(std::string_view text);

/// The shortest that parse_sizes reads as the same: "64K", "1000".
std::string text_of_size(std::size_t bytes);

}  // namespace mccl::cli::bench
