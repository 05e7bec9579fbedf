// From a process's place in a job to the store at which its ranks meet.
#pragma once

#include <chrono>
#include <string>

#include "mccl/meeting.h"

namespace mccl::rendezvous {

/// Tells `root` of rank 0 to all ranks through MPICH's launcher (PMI 1, at `descriptor`), which
/// answers nobody afterwards: a program that calls MPI too gives MCCL_ROOT instead. Returns rank
/// 0's. Throws Error.
std::string exchange_root(int descriptor, int rank, const std::string& root,
                          std::chrono::milliseconds timeout);

}  // namespace mccl::rendezvous
