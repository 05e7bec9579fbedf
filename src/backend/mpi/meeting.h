// How the members of a group come together: each tells the first what it is about to make, and the
// first tells all whether they make the same. Only then is MPI asked for a communicator, which
// waits without a limit.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "backend/mpi/group_state.h"
#include "backend/mpi/process.h"

namespace mccl::mpi {

struct Invitation {
  std::string name;
  std::vector<int> members;  ///< As ranks of MPI_COMM_WORLD, in the order of their new ranks.
  std::string agreement;     ///< What all must say alike, such as settings and the library.
};

/// Blocks. Throws TimeoutError that names who has not come, or MismatchError.
std::shared_ptr<GroupState> meet(Process& process, const Invitation& invitation,
                                 std::chrono::milliseconds timeout);

}  // namespace mccl::mpi
