// Bytes and seconds that one call spends on transfers between ranks. Summed into the metrics.
#pragma once

#include <cstdint>

namespace mccl::engine {

struct Traffic {
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
  double network_s = 0;
  /// False if the caller does not want `network_s`, because reading the clock costs more than the
  /// transfer.
  bool timed = true;
  /// True if a carrier carried out the call. All of the call's time then counts as `network_s`.
  bool carried = false;
};

}  // namespace mccl::engine
