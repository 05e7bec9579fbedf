// Memory of a call whose input arrives, and whose output is fetched, while the call runs.
#pragma once

#include <cstddef>

namespace mccl {

/// Input and output both proceed from the beginning of their memory.
class Conveyor {
 public:
  virtual ~Conveyor() = default;

  /// Bytes of the input that have arrived; never decreases. Throws Error if no more will arrive.
  virtual std::size_t arrived() const = 0;
  /// Size in bytes of the pieces in which the output is fetched. The call reports progress whenever
  /// another piece is complete.
  virtual std::size_t piece_of_output() const = 0;
  /// Reports that the first `bytes` of the output are final.
  virtual void deliver(std::size_t bytes) = 0;
};

}  // namespace mccl
