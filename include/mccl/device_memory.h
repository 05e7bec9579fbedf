// Memory of a device that the devices of other ranks can reach directly. The functions are
// thread-safe.
#pragma once

#include <cstddef>

#include "mccl/buffer.h"

namespace mccl {

/// Allocates at least `bytes` bytes on `device`, in multiples of 2 MiB. Collectives use the memory
/// in place after Group::reach_device_memory(). The caller frees it with free_device_memory().
/// Throws InvalidArgument if this machine has no such device, Error if the device is out of memory.
void* allocate_device_memory(Device device, std::size_t bytes);

/// Frees `memory`, which allocate_device_memory() returned for `device`; blocks until the device
/// has finished the work it was given. Memory that other ranks can reach stays with this process,
/// which reuses it for later allocations. Throws InvalidArgument if `memory` was not allocated
/// there.
void free_device_memory(Device device, void* memory);

}  // namespace mccl
