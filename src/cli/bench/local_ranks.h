// Ranks as processes of this machine: started by fork, watched, and never outliving one another.
#pragma once

#include <functional>

#include "cli/bench/port_pipe.h"

namespace mccl::cli::bench {

using RankBody = std::function<void(int rank, PortPipe& port)>;

/// Runs `body` in that many new processes and waits for all of them. Call it while the process has
/// one thread. Each gets a core of its own where there are enough. A body that throws, or a process
/// that is killed, ends all: the message of the first cause goes to stderr after `who`. Returns the
/// exit status. The processes die with this one, however it dies.
int run_local_ranks(int ranks, const char* who, const RankBody& body);

}  // namespace mccl::cli::bench
