// Two processes that claim one rank: each learns of the other.
#pragma once

#include <functional>
#include <string>

#include "base/log.h"
#include "rendezvous/meeting/meeting.h"

namespace mccl::rendezvous {

/// Returns JoinRequest::on_second for the first process: it logs a warning. The function refers to
/// no object.
std::function<void(const std::string& process)> warning_of_second(Log log, int rank);

/// Called after no rank 0 has answered this process, or, on rank 0, after no other rank has
/// arrived. If the ranks of an earlier run met through the same store, and the process that has
/// this rank still runs, that process logs a warning, and this function throws InvalidArgument.
/// Blocks for about 2 s at most.
void report_to_first_process(const MeetingOptions& options);

}  // namespace mccl::rendezvous
