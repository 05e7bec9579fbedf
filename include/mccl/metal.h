// Makes Buffers of Metal memory, and copies between Metal buffers.
#pragma once

#include <cstddef>
#include <span>

#include "mccl/buffer.h"
#include "mccl/export.h"
#include "mccl/types.h"

namespace mccl {

/// A position in Metal memory: an id<MTLBuffer> and an offset into it, in bytes.
struct MetalPlace {
  void* buffer = nullptr;
  std::size_t offset = 0;
};

/// A Buffer of `count` elements that begins at `place`. The storage mode of the MTLBuffer decides
/// how calls use it. Shared memory is read and written in place, as host memory. Private memory is
/// copied to the host and back. In both cases a call needs a CallOptions::fence that passes once
/// the GPU has finished its earlier work on the memory. Throws InvalidArgument if this machine has
/// no Metal, or if the elements do not fit into the MTLBuffer.
MCCL_API Buffer metal_buffer(MetalPlace place, std::size_t count, DType dtype);

/// A copy of `bytes` bytes between two places. An argument of metal_copy().
struct MetalCopy {
  MetalPlace from;
  MetalPlace to;
  std::size_t bytes = 0;
};

/// Makes the copies one after another and blocks until all are done. The GPU must have finished its
/// work on the memory. Does not use a queue of the caller: the host copies between shared buffers,
/// and a queue of the library makes all other copies. Throws InvalidArgument if this machine has no
/// Metal or a buffer is too short, Error if a copy fails.
MCCL_API void metal_copy(std::span<const MetalCopy> copies);

}  // namespace mccl
