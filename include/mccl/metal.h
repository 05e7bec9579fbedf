// Memory of Metal's buffers, as the engine takes it.
#pragma once

#include <cstddef>
#include <span>

#include "mccl/buffer.h"
#include "mccl/export.h"
#include "mccl/types.h"

namespace mccl {

/// A place in an id<MTLBuffer>.
struct MetalPlace {
  void* buffer = nullptr;
  std::size_t offset = 0;
};

/// The memory of a call that begins at `place`. The buffer is asked for its storage mode: what is
/// shared the host reads and writes where it lies, as host memory, and what is private is brought
/// to the host and back. Either way CallOptions::fence tells when the GPU has done what it has been
/// given to do with it. Throws InvalidArgument where this machine has no Metal, or the buffer ends
/// before the memory does.
MCCL_API Buffer metal_buffer(MetalPlace place, std::size_t count, DType dtype);

struct MetalCopy {
  MetalPlace from;
  MetalPlace to;
  std::size_t bytes = 0;
};

/// Copies, one after another, and returns when all is done. The GPU must be over with the memory.
/// Nothing is given to a queue of the caller's: shared buffers are copied by the host, private ones
/// on a queue of the library's own. Throws Error.
MCCL_API void metal_copy(std::span<const MetalCopy> copies);

}  // namespace mccl
