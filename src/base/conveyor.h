// The memory of a call whose input comes there, and whose output is fetched, while the call runs.
#pragma once

#include <cstddef>

namespace mccl {

/// Both from the beginning of the memory on.
class Conveyor {
 public:
  virtual ~Conveyor() = default;

  /// Bytes of the input that are there; they only grow. Throws Error where no more will come.
  virtual std::size_t arrived() const = 0;
  /// In which the output is fetched: whoever fills it says when another such piece is done.
  virtual std::size_t piece_of_output() const = 0;
  /// The first `bytes` of the output stay as they are.
  virtual void deliver(std::size_t bytes) = 0;
};

}  // namespace mccl
