// The text of the kernels for Macs' GPUs, which Metal compiles when a process first needs it.
#pragma once

#include <string>
#include <string_view>

#include "mccl/types.h"

namespace mccl::kernels::metal {

/// Whole: without includes of files of ours.
std::string_view source();

/// The kernel that reduces two arrays of `dtype` by `kind`; empty where there is none. avg and
/// premul_sum add, as in reduce.h.
std::string kernel_for(DType dtype, ReduceKind kind);

}  // namespace mccl::kernels::metal
