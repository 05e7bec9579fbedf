// Runs MCCL's kernels on a Mac's GPU through the system's Metal.
#pragma once

#include <memory>

#include "device/metal/driver.h"

namespace mccl::device::metal {

/// `device`: an id<MTLDevice>; `queue`: an id<MTLCommandQueue> of it. Throws InvalidArgument.
std::shared_ptr<Kernels> load_kernels(void* device, void* queue, const KernelOptions& options);

/// The fence passes when the command buffer has run. `what` is its name in messages and must
/// outlive the fence.
std::shared_ptr<Fence> fence_of(void* command_buffer, const char* what);

}  // namespace mccl::device::metal
