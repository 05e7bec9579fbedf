// The store of a job in which not all ranks reach rank 0 directly.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "mccl/store.h"
#include "rendezvous/cabling/wiring.h"

namespace mccl::rendezvous {

/// Creates a TCP store whose connections follow the cables on which the ranks have agreed, through
/// relays if necessary. Otherwise the same as make_tcp_store().
std::shared_ptr<Store> make_wired_store(const std::shared_ptr<Wiring>& wiring, int rank,
                                        const std::string& job_key,
                                        std::chrono::milliseconds timeout,
                                        const StoreReport& report);

}  // namespace mccl::rendezvous
