// Measures the upper bounds of this machine, for comparison with the collectives.
#pragma once

#include <cstddef>
#include <optional>

#include "cli/bench/loopback.h"
#include "mccl/group.h"

namespace mccl::cli::bench {

/// Copy rates of this machine, in GB/s per process: bytes of a process's buffer divided by the time
/// of the slowest process.
struct Bounds {
  std::size_t buffer_bytes = 0;
  double copy_one_gbs = 0;  ///< One process copies its buffer while the others wait.
  double copy_all_gbs = 0;  ///< All processes copy at the same time.
  double pass_all_gbs =
      0;  ///< All processes together copy their buffers to a small stage and back.
  std::optional<Loopback> loopback;  ///< Set if two processes share the machine.
};

/// Called by every rank. `one_host` is true if all ranks are on this machine.
Bounds measure_bounds(Group& group, bool one_host);

}  // namespace mccl::cli::bench
