#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace mccl::cli::launch {

/// TCP ports of this machine that nobody uses just now, all different. Throws Error.
std::vector<std::uint16_t> free_ports(std::size_t count);

/// Whether nothing listens at the port of this machine.
bool is_free(std::uint16_t port);

}  // namespace mccl::cli::launch
