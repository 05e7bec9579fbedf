// Passes the port of rank 0's store to the other ranks of this machine.
#pragma once

#include <cstdint>

#include "cli/kit/pipe.h"

namespace mccl::cli::bench {

/// A pipe that carries the port. It must be made before the processes, so that all of them share
/// it.
class PortPipe {
 public:
  /// Throws Error.
  explicit PortPipe(int ranks) : ranks_(ranks), pipe_(make_pipe()) {}

  /// Called by rank 0: sends the port to all others.
  void announce(std::uint16_t port);
  /// Called by every other rank: blocks until it has the port. Throws PeerError if rank 0 ended
  /// before it sent the port.
  std::uint16_t learn();
  /// Called by a process that is not a rank: closes its ends of the pipe. Otherwise, waiting ranks
  /// would not see the end of the pipe when rank 0 has ended.
  void close() noexcept;

 private:
  int ranks_;
  Pipe pipe_;
};

}  // namespace mccl::cli::bench
