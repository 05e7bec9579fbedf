// Bytes and seconds that one call spends on what is between the ranks; summed into the metrics.
#pragma once

#include <cstdint>

namespace mccl::engine {

struct Traffic {
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
  double network_s = 0;
};

}  // namespace mccl::engine
