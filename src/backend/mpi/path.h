// Lets MPI carry out the calls of groups, for MCCL_BACKEND=mpi.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "engine/calls/carrier.h"
#include "engine/engine.h"
#include "mccl/context.h"
#include "mccl/group.h"

namespace mccl::mpi {

/// Initialises MPI. Returns `options` with the rank, size, store and job key from Process. Throws
/// like Process::get(), and InvalidArgument if `options` set a rank or size that MPI's differ from.
ContextOptions placed(const ContextOptions& options);

/// Makes the carrier of `group`, with an MPI communicator for its ranks. All ranks of the group
/// must call this, while the group's calls still use the engine's links. `members` are ranks of the
/// job. Throws TimeoutError, which names the ranks that have not arrived within `patience`. Throws
/// MismatchError if the libraries or thread levels of the ranks differ.
std::unique_ptr<engine::Carrier> make_path(Group& group, const std::vector<int>& members,
                                           std::chrono::milliseconds patience,
                                           std::weak_ptr<engine::Engine> engine);

/// For tests: limits the elements in one MPI call, as if MPI's int were that short. Applies to
/// groups made later.
void count_at_most(std::size_t most);

}  // namespace mccl::mpi
