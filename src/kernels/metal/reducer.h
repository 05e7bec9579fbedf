// Reduces 16-bit floats on a Mac's GPU.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "kernels/unit.h"

namespace mccl::kernels::metal {

struct ReducerOptions {
  bool fast_math = true;
  /// Path of the kernels, compiled or as source text. If empty, MCCL's own source is used.
  std::string path;
  std::size_t threshold = 1;  ///< The reducer leaves calls with fewer elements to other units.
};

/// Throws InvalidArgument if this machine has no Metal or the kernels cannot be loaded.
std::shared_ptr<Unit> make_reducer(const ReducerOptions& options);

}  // namespace mccl::kernels::metal
