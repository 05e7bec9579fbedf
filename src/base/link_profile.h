// Values that depend on the kind of cable unless they are set explicitly.
#pragma once

#include <cstddef>

#include "mccl/config.h"

namespace mccl {

/// Maximum size of a message on the wire, in bytes.
std::size_t chunk_bytes_of(const Config& config);

/// Buffer size to request for sockets, in bytes; 0 for the kernel's default.
std::size_t socket_buffer_bytes_of(const Config& config);

}  // namespace mccl
