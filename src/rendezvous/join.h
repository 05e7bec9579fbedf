// Opens the store through which the ranks of a job meet, given a process's place in the job.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "base/placement.h"
#include "mccl/config.h"
#include "mccl/metrics.h"
#include "mccl/store.h"

namespace mccl::rendezvous {

class Wiring;

/// The means by which a process meets the others.
struct Joined {
  std::shared_ptr<Store> store;    ///< Null when the job has one rank.
  std::shared_ptr<Wiring> wiring;  ///< Null if every rank reaches every other directly.
};

/// Waits as long as the settings allow. Refused connections are counted in `metrics`, unless it is
/// null.
Joined join(const Placement& placement, const Config& config,
            const std::shared_ptr<Metrics>& metrics = nullptr);

/// Returns host:port at which rank 0 serves the store, from the placement or from rank 0 through
/// MPICH's launcher. The launcher answers only once in the lifetime of a process. Blocks until all
/// ranks have called it. Empty if no store is needed (MPI, a single rank) or no launcher provides
/// the address (a hostfile). Throws Error.
std::string meeting_point(const Placement& placement, const Config& config);

/// Passes rank 0's `root` to all ranks through MPICH's launcher (PMI 1, at `descriptor`) and
/// returns it. The launcher answers nothing afterwards, so a program that also uses MPI must set
/// MCCL_ROOT instead. Throws Error.
std::string exchange_root(int descriptor, int rank, const std::string& root,
                          std::chrono::milliseconds timeout);

}  // namespace mccl::rendezvous
