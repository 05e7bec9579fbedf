// Result of sending or receiving bytes on a connection.
#pragma once

#include <cstddef>

namespace mccl::transport::tcp {

/// The bytes moved, and an errno, or 0. would_block() tells whether a call with that errno must be
/// repeated later.
struct Moved {
  std::size_t bytes = 0;
  int error = 0;
};

}  // namespace mccl::transport::tcp
