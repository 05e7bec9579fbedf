// Interface of units that do arithmetic in place of the host's kernels: a system library or a GPU.
#pragma once

#include <cstddef>

#include "mccl/types.h"

namespace mccl::kernels {

/// Thread-safe.
class Unit {
 public:
  virtual ~Unit() = default;

  /// Does the same as kernels::reduce and returns true. Returns false, without effect, if this unit
  /// does not handle such a call, which the caller must then pass to another. Throws Error.
  virtual bool reduce(DType dtype, ReduceKind kind, const void* a, const void* b, void* dst,
                      std::size_t n) = 0;
};

}  // namespace mccl::kernels
