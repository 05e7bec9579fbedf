// Opens the store through which the ranks of a job connect, given the process's Placement.
#pragma once

#include <memory>
#include <string>

#include "mccl/meeting.h"
#include "mccl/store.h"
#include "rendezvous/cabling/wiring.h"

namespace mccl::rendezvous {

/// Returns a host:port at which this process can serve a store. The port is free; the host is the
/// loopback address if all ranks are on one host.
std::string own_root(bool one_host);

/// Passes rank 0's `root` to all ranks through MPICH's launcher (PMI 1, at `descriptor`) and
/// returns it. The launcher then answers no further requests of this process, so a program that
/// also uses MPI must set MCCL_ROOT instead. Throws Error if the launcher does not answer as
/// expected.
std::string exchange_root(int descriptor, int rank, const std::string& root, milliseconds timeout);

/// The same as make_tcp_store(), but connections to the store follow the cables on which the ranks
/// have agreed, through relays if necessary.
std::shared_ptr<Store> make_wired_store(const std::shared_ptr<Wiring>& wiring, int rank,
                                        Party access, milliseconds timeout,
                                        const StoreReport& report);

}  // namespace mccl::rendezvous
