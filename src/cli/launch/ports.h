// Chooses the TCP ports of a job.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "cli/launch/job.h"

namespace mccl::cli::launch {

inline constexpr int kUsualPort = 32323;

/// Returns placeholders for the addresses at which the ranks will meet, for --print-env and
/// --dry-run, which contact no host. These are the names of the hosts, or 127.0.0.1 if all ranks
/// run on this machine.
std::vector<Reached> expected_places(const Job& job);
Ports choose_ports(const Job& job, const std::optional<int>& starting_port,
                   std::span<const Reached> places);

/// Number of ports that MLX's ring needs.
std::size_t ring_ports(const Job& job);
/// Returns consecutive ports from `first` - 2 up: root, master, and those of the ring. Throws
/// InvalidArgument if they do not fit.
Ports ports_from(const Job& job, int first);

/// Returns `count` different TCP ports of this machine that are not in use at the moment. Throws
/// Error.
std::vector<std::uint16_t> free_ports(std::size_t count);

}  // namespace mccl::cli::launch
