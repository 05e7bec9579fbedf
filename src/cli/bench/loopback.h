// Measures plain TCP sockets between two processes of this machine.
#pragma once

#include "mccl/group.h"

namespace mccl::cli::bench {

struct Loopback {
  double one_way_gbs = 0;    ///< Rate from one process to the other, in GB/s.
  double both_ways_gbs = 0;  ///< Rate in each direction with both in use, in GB/s.
  double round_trip_us = 0;  ///< Median round trip of 8 bytes, in the best batch.
};

/// Measures between ranks 0 and 1 of a group of at least two. Called by every rank; those other
/// than 0 and 1 only wait. Use the result of rank 0. Throws Error.
Loopback measure_loopback(Group& group);

}  // namespace mccl::cli::bench
