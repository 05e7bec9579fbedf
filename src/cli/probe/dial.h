// The connecting side of a probe.
#pragma once

#include <string>

#include "cli/probe/secret.h"
#include "cli/probe/stream.h"

namespace mccl::cli::probe {

struct Reached {
  bool good = false;
  std::string why;    ///< The reason why the connection failed, such as "Connection refused".
  std::string local;  ///< Local address of the connection.
  double seconds = 0;
};

/// Connects, and makes the other side prove that it knows the key.
Reached dial(const Secret& secret, const Address& to, const Address* source);

struct Timed {
  bool good = false;
  double latency_s = 0;  ///< Latency in one direction: half the median round trip of one byte.
  double bytes_per_s = 0;
};

/// Measures latency and rate. Sends data for about `seconds`, or less if the link is fast.
Timed time_link(const Secret& secret, const Address& to, const Address* source, double seconds);

}  // namespace mccl::cli::probe
