// Links through memory that the ranks of a node share. The dialing end offers a range of its arena
// (node/arena.h), and the other end maps the range.
#pragma once

#include <memory>

#include "node/neighbour.h"
#include "transport/transport.h"

namespace mccl::transport::shm {

/// `memory->arena` must not be null.
std::unique_ptr<Transport> make_shm_transport(std::shared_ptr<const node::SharedMemory> memory);

}  // namespace mccl::transport::shm
