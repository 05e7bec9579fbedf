// The side of a probe that connects.
#pragma once

#include <string>

#include "cli/probe/secret.h"
#include "cli/probe/stream.h"

namespace mccl::cli::probe {

struct Reached {
  bool good = false;
  std::string why;    ///< Why not: "Connection refused".
  std::string local;  ///< The address of this end.
  double seconds = 0;
};

/// Connects and has the other side prove that it knows the key.
Reached dial(const Secret& secret, const Address& to, const Address* source);

struct Timed {
  bool good = false;
  double latency_s = 0;  ///< One way: half of the median of some rounds of one byte.
  double bytes_per_s = 0;
};

/// Sends for about so long.
Timed time_link(const Secret& secret, const Address& to, const Address* source, double seconds);

}  // namespace mccl::cli::probe
