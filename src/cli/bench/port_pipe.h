// How the port of rank 0's store comes to the other ranks of this machine.
#pragma once

#include <cstdint>

#include "cli/kit/pipe.h"

namespace mccl::cli::bench {

/// Made before the processes are, so that all share it.
class PortPipe {
 public:
  /// Throws Error.
  explicit PortPipe(int ranks) : ranks_(ranks), pipe_(make_pipe()) {}

  /// Rank 0 tells all others.
  void announce(std::uint16_t port);
  /// Any other rank waits for it. Throws PeerError when rank 0 ended before it told.
  std::uint16_t learn();
  /// For who takes no part: those who wait see the end when rank 0 is gone too.
  void close() noexcept;

 private:
  int ranks_;
  Pipe pipe_;
};

}  // namespace mccl::cli::bench
