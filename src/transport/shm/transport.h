// Links through memory that the ranks of a node share. The dialing end offers a range of its arena
// (node/arena.h), and the other end maps the range. Links for messages may also read the memory of
// the sending process: "one copy", as opposed to two copies through shared memory.
#pragma once

#include <memory>
#include <string_view>

#include "node/neighbour.h"
#include "transport/transport.h"

namespace mccl::transport::shm {

/// `memory->arena` must not be null. `cross_memory` is the setting of that name: with "on",
/// messages need one copy wherever the system permits it. With "auto", equal_ways() returns the two
/// ways, and take_way() selects one; initially, messages need two copies. If only two copies are
/// possible, equal_ways() returns one element, the reason.
std::unique_ptr<Transport> make_shm_transport(std::shared_ptr<const node::SharedMemory> memory,
                                              std::string_view cross_memory);

}  // namespace mccl::transport::shm
