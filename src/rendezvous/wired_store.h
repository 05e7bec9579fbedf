// The store of a job in which not all ranks reach rank 0 directly.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "mccl/store.h"
#include "rendezvous/cabling/wiring.h"

namespace mccl::rendezvous {

/// Like make_tcp_store, but connects along the cables that the ranks have agreed on.
std::shared_ptr<Store> make_wired_store(const std::shared_ptr<Wiring>& wiring, int rank,
                                        const std::string& job_key,
                                        std::chrono::milliseconds timeout,
                                        const StoreReport& report);

}  // namespace mccl::rendezvous
