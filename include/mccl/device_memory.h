// Memory of a device that the devices of other ranks can come to reach.
#pragma once

#include <cstddef>

#include "mccl/buffer.h"

namespace mccl {

/// What Group::reach_device_memory() is about. Throws InvalidArgument where this machine has no
/// such device, Error where that has no more memory.
void* allocate_device_memory(Device device, std::size_t bytes);

/// Once the device is done with it. What other ranks reach stays the process's, to be given again.
void free_device_memory(Device device, void* memory);

}  // namespace mccl
