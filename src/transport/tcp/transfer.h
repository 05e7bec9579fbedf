// The result of sending or receiving bytes.
#pragma once

#include <cstddef>

namespace mccl::transport::tcp {

/// Result of sending or receiving: the number of bytes moved, and an errno or 0. If
/// would_block(error) is true, the call must be repeated later.
struct TransferResult {
  std::size_t bytes = 0;
  int error = 0;
};

}  // namespace mccl::transport::tcp
