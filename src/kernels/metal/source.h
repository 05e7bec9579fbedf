// The source text of the kernels for Macs' GPUs. A process compiles it if the build has not.
#pragma once

#include <string>
#include <string_view>

#include "mccl/types.h"

namespace mccl::kernels::metal {

/// Returns the complete source text, which includes no file of MCCL.
std::string_view source();

/// Returns the name of the kernel that reduces two arrays of `dtype` by `kind`; empty if no kernel
/// does. avg and premul_sum use the kernel for sum.
std::string kernel_for(DType dtype, ReduceKind kind);

}  // namespace mccl::kernels::metal
