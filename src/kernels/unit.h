// Interface of units that do arithmetic instead of the host's kernels: a system library or a GPU.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "mccl/types.h"

namespace mccl::kernels {

/// Reduces arrays in host memory. Thread-safe.
class Unit {
 public:
  virtual ~Unit() = default;

  /// Does the same as kernels::reduce and returns true. If this unit does not support the call,
  /// returns false without effect, and the caller must use another unit. Throws Error if the unit
  /// fails.
  virtual bool reduce(DType dtype, ReduceKind kind, const void* a, const void* b, void* dst,
                      std::size_t n) = 0;
};

/// Makes the unit that sums f32 with Accelerate, the arithmetic library of macOS. Throws
/// InvalidArgument if this system has no Accelerate.
std::shared_ptr<Unit> make_accelerate();

struct ReducerOptions {
  bool fast_math = true;
  /// Path of a file with the kernels, compiled or as source text. If empty, the kernels that MCCL
  /// contains are used.
  std::string path;
  /// Minimum number of elements. The reducer leaves smaller calls to other units.
  std::size_t threshold = 1;
};

/// Makes the unit that reduces 16-bit floats on a Mac's GPU. Throws InvalidArgument if this machine
/// has no Metal or the kernels cannot be loaded.
std::shared_ptr<Unit> make_reducer(const ReducerOptions& options);

}  // namespace mccl::kernels
