// Memory of a device that the devices of other ranks can come to reach, and streams of a device.
#pragma once

#include <cstddef>

#include "mccl/buffer.h"
#include "mccl/export.h"

namespace mccl {

/// What Group::reach_device_memory() is about. Throws InvalidArgument where this machine has no
/// such device, Error where that has no more memory.
MCCL_API void* allocate_device_memory(Device device, std::size_t bytes);

/// Once the device is done with it. What other ranks reach stays the process's, to be given again.
MCCL_API void free_device_memory(Device device, void* memory);

/// Whether this process can use the device.
MCCL_API bool has_device(Device device);

/// A stream of the device that no other caller has, by its handle (a CUstream). It is never
/// destroyed. Throws as allocate_device_memory().
MCCL_API void* make_stream(Device device);

/// Ends a capture of the CUDA stream, drops what it has recorded, and returns true; returns false
/// where nothing is captured. Throws Error.
MCCL_API bool drop_capture(void* stream);
/// Begins one again, of the calls of this thread.
MCCL_API void begin_capture(void* stream) noexcept;

}  // namespace mccl
