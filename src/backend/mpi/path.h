// MPI as what carries out the calls of groups: MCCL_BACKEND=mpi.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "engine/engine.h"
#include "engine/groups/carrier.h"
#include "mccl/context.h"
#include "mccl/group.h"

namespace mccl::mpi {

/// The options of a job whose ranks and meeting place are MPI's. Initialises MPI. Throws as
/// Process::get, and InvalidArgument where the options say another place than MPI's.
ContextOptions placed(const ContextOptions& options);

/// A collective of `group`, whose calls go over the engine's links yet: its ranks meet, and MPI
/// makes a communicator for them. `members`: as ranks of the job. Throws TimeoutError that names
/// the ranks which have not come within `patience`, and MismatchError where their libraries differ.
std::unique_ptr<engine::Carrier> make_path(Group& group, const std::vector<int>& members,
                                           std::chrono::milliseconds patience,
                                           std::weak_ptr<engine::Engine> engine);

/// For tests: MPI is asked to count no more elements than this in one call of the groups to come,
/// as if an int were so short.
void count_at_most(std::size_t most);

}  // namespace mccl::mpi
