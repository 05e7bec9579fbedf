#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace mccl::cli::launch {

/// TCP ports of this machine that nobody uses just now, all different. Throws Error.
std::vector<std::uint16_t> free_ports(std::size_t count);

}  // namespace mccl::cli::launch
