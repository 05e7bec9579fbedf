// Creates the MPI communicator of a group.
#pragma once

#include <chrono>
#include <vector>

#include "backend/mpi/flight.h"
#include "mccl/group.h"

namespace mccl::mpi {

class MpiProcess;

/// Returns the communicator of `group`, whose members have the ranks `members` in the job. All of
/// them must call it. Leaves CallCommunicator::most to the caller. Throws MismatchError on every
/// rank if their MPI libraries differ, and TimeoutError if some ranks do not call it within
/// `patience`. MPI blocks without a time limit if a member dies meanwhile. So another thread makes
/// the call, and is abandoned if the group has failed (PeerError) or the time is over
/// (TimeoutError); MPI cannot be used any more then. Below MPI_THREAD_MULTIPLE, the wait is
/// unlimited, because a thread that is blocked in MPI would also block all other calls of MPI.
CallCommunicator make_communicator(Group& group, MpiProcess& process,
                                   const std::vector<int>& members,
                                   std::chrono::milliseconds patience);

}  // namespace mccl::mpi
