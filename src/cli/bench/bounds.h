// Facts about this machine, and measured upper bounds of the collectives' rates on it.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "mccl/config.h"
#include "mccl/group.h"

namespace mccl::cli::bench {

/// The model of the CPU, or its architecture.
std::string cpu_name();
unsigned core_count();

/// Measurements of plain TCP sockets between two processes of this machine.
struct Loopback {
  double one_way_gbs = 0;    ///< Rate from one process to the other, in GB/s.
  double both_ways_gbs = 0;  ///< Rate in each direction while both are in use, in GB/s.
  double round_trip_us = 0;  ///< Median time of a round trip of 8 bytes, in the fastest batch.
};

/// Copy rates of this machine, in GB/s per process: bytes of a process's buffer divided by the time
/// of the slowest process.
struct Bounds {
  std::size_t buffer_bytes = 0;
  double copy_one_gbs = 0;  ///< One process copies its buffer while the other processes wait.
  double copy_all_gbs = 0;  ///< All processes copy at the same time.
  /// All processes copy their buffer at the same time, piece by piece, to a small buffer and back.
  double pass_all_gbs = 0;
  std::optional<Loopback> loopback;  ///< Set if there are several ranks, all on this machine.
};

/// Every rank must call this function. `one_host` is true if all ranks are on this machine.
Bounds measure_bounds(Group& group, bool one_host);

/// Returns a table of the rates of three ways to sum two arrays on this machine: MCCL's own
/// kernels, Apple's Accelerate library and the GPU.
std::string kernels_text(const Config& config);

}  // namespace mccl::cli::bench
