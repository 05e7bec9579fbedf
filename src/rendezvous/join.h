// From a process's place in a job to the store at which its ranks meet.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "base/placement.h"
#include "mccl/config.h"
#include "mccl/metrics.h"
#include "mccl/store.h"

namespace mccl::rendezvous {

/// The store of a job; null when it has one rank. Waits as long as the settings let it. Rank 0
/// counts strangers in `metrics`, unless it is null.
std::shared_ptr<Store> join(const Placement& placement, const Config& config,
                            const std::shared_ptr<Metrics>& metrics = nullptr);

/// Tells `root` of rank 0 to all ranks through MPICH's launcher (PMI 1, at `descriptor`), which
/// answers nobody afterwards: a program that calls MPI too gives MCCL_ROOT instead. Returns rank
/// 0's. Throws Error.
std::string exchange_root(int descriptor, int rank, const std::string& root,
                          std::chrono::milliseconds timeout);

}  // namespace mccl::rendezvous
