// What may do arithmetic in place of the host's kernels: a library of the system's, or a GPU.
#pragma once

#include <cstddef>

#include "mccl/types.h"

namespace mccl::kernels {

/// Thread-safe.
class Unit {
 public:
  virtual ~Unit() = default;

  /// As kernels::reduce; false, and nothing done, where it leaves that to others. Throws Error.
  virtual bool reduce(DType dtype, ReduceKind kind, const void* a, const void* b, void* dst,
                      std::size_t n) = 0;
};

}  // namespace mccl::kernels
