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

class Wiring;

/// What a process meets the others through.
struct Joined {
  std::shared_ptr<Store> store;    ///< Null when the job has one rank.
  std::shared_ptr<Wiring> wiring;  ///< Null where every rank reaches every other.
};

/// Waits as long as the settings let it. Strangers are counted in `metrics`, unless it is null.
Joined join(const Placement& placement, const Config& config,
            const std::shared_ptr<Metrics>& metrics = nullptr);

/// host:port at which rank 0 serves the store, as the placement has it or as rank 0 tells through
/// MPICH's launcher, which answers once in the life of a process. Blocks until all ranks ask. Empty
/// where ranks need none (MPI, a single rank) or no launcher tells one (a hostfile). Throws Error.
std::string meeting_point(const Placement& placement, const Config& config);

/// host:port at which this process can serve a store: a free port, of the loopback interface where
/// all ranks are on one host.
std::string own_root(bool one_host);

/// Tells `root` of rank 0 to all ranks through MPICH's launcher (PMI 1, at `descriptor`), which
/// answers nobody afterwards: a program that calls MPI too gives MCCL_ROOT instead. Returns rank
/// 0's. Throws Error.
std::string exchange_root(int descriptor, int rank, const std::string& root,
                          std::chrono::milliseconds timeout);

}  // namespace mccl::rendezvous
