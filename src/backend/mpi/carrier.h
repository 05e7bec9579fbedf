// Creates the carrier that lets MPI carry out the calls of a group, for MCCL_BACKEND=mpi.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "engine/calls/carrier.h"
#include "engine/engine.h"
#include "mccl/group.h"

namespace mccl::mpi {

/// Creates the carrier of `group`, with an MPI communicator for its ranks. All ranks of the group
/// must call this, while the group's calls still use the engine's links. `members` are ranks of the
/// job. Throws TimeoutError if a rank does not call this within `patience`; the message lists the
/// missing ranks. Throws MismatchError if the libraries or thread levels of the ranks differ.
std::unique_ptr<engine::Carrier> make_carrier(Group& group, const std::vector<int>& members,
                                              std::chrono::milliseconds patience,
                                              std::weak_ptr<engine::Engine> engine);

/// Sets the maximum number of elements in one MPI call, which is otherwise INT_MAX. Only tests call
/// it. The limit applies to groups that are created later.
void count_at_most(std::size_t most);

}  // namespace mccl::mpi
