#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace mccl::cli::launch {

/// Returns `count` different TCP ports of this machine that are not in use at the moment. Throws
/// Error.
std::vector<std::uint16_t> free_ports(std::size_t count);

/// True if nothing listens at the port on this machine.
bool is_free(std::uint16_t port);

}  // namespace mccl::cli::launch
