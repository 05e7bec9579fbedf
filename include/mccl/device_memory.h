// Functions that allocate device memory which the devices of other ranks can access directly, and
// functions for CUDA streams. All are thread-safe.
#pragma once

#include <cstddef>

#include "mccl/buffer.h"
#include "mccl/export.h"

namespace mccl {

/// Allocates `bytes` bytes on `device`, rounded up to a multiple of 2 MiB. After
/// Group::reach_device_memory(), collectives read inputs in this memory in place where that is
/// faster. The caller frees it with free_device_memory(). Throws InvalidArgument if this machine
/// has no such device, Error if the device is out of memory.
MCCL_API void* allocate_device_memory(Device device, std::size_t bytes);

/// Frees `memory`, which allocate_device_memory() returned for `device`. Blocks until the device
/// has finished the work that was submitted to it. Memory that other ranks can access is not
/// returned to the device: this process keeps it for later allocations. Throws InvalidArgument if
/// `memory` was not allocated on `device` by allocate_device_memory().
MCCL_API void free_device_memory(Device device, void* memory);

/// True if this process can use the device.
MCCL_API bool has_device(Device device);

/// Returns the handle (a CUstream) of a new stream of the device, for this caller alone. The stream
/// is never destroyed. Throws InvalidArgument if this machine has no such device, Error if the
/// stream cannot be created.
MCCL_API void* make_stream(Device device);

/// Ends the capture of the CUDA stream, drops what was recorded, and returns true. Returns false if
/// the stream is not being captured. Throws Error if the CUDA driver reports a failure.
MCCL_API bool drop_capture(void* stream);
/// Begins a new capture of the stream, which records only the work that this thread submits.
MCCL_API void begin_capture(void* stream) noexcept;

}  // namespace mccl
