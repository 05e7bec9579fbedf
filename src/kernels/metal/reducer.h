// Reductions of 16-bit floats by a Mac's GPU.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "kernels/unit.h"

namespace mccl::kernels::metal {

struct ReducerOptions {
  bool fast_math = true;
  std::string path;           ///< Of kernels, compiled or as text; empty: MCCL's own text.
  std::size_t threshold = 1;  ///< Elements below which the reducer takes nothing.
};

/// Throws InvalidArgument where this machine has no Metal, or the kernels cannot be had.
std::shared_ptr<Unit> make_reducer(const ReducerOptions& options);

}  // namespace mccl::kernels::metal
