// What the kind of cable decides, where nothing else was set.
#pragma once

#include <cstddef>

#include "mccl/config.h"

namespace mccl {

/// The largest message on the wire.
std::size_t chunk_bytes_of(const Config& config);

/// What sockets are asked for; 0 for what the kernel thinks best.
std::size_t socket_buffer_bytes_of(const Config& config);

}  // namespace mccl
