// Ranks as processes of this machine: started by fork, watched, and ended together.
#pragma once

#include <functional>

#include "cli/bench/port_pipe.h"

namespace mccl::cli::bench {

using RankBody = std::function<void(int rank, PortPipe& port)>;

/// Runs `body` in `ranks` new processes and blocks until all have ended. Must be called while the
/// process has one thread. Each process gets a core of its own if there are enough. If a body
/// throws, or a process is killed, all are ended; the message of the first cause is printed to
/// stderr after `who`. Returns the exit status. If this process ends for any reason, the new
/// processes end too.
int run_local_ranks(int ranks, const char* who, const RankBody& body);

}  // namespace mccl::cli::bench
