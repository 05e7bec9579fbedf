// What this machine can do at best, measured beside the collectives.
#pragma once

#include <cstddef>
#include <optional>

#include "cli/bench/loopback.h"
#include "mccl/group.h"

namespace mccl::cli::bench {

/// Rates are GB/s of each process: bytes of its buffer over the time of the slowest process.
struct Bounds {
  std::size_t buffer_bytes = 0;
  double copy_one_gbs = 0;  ///< One process copies its buffer, the others wait.
  double copy_all_gbs = 0;  ///< All copy at once.
  double pass_all_gbs = 0;  ///< All pass over their buffers in place, through a small stage.
  std::optional<Loopback> loopback;  ///< Where two processes share the machine.
};

/// Every rank calls it. `one_host`: all ranks are on this machine.
Bounds measure_bounds(Group& group, bool one_host);

}  // namespace mccl::cli::bench
