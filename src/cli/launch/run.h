// Runs a job, from the first connection to the last exit.
#pragma once

#include "cli/launch/job.h"
#include "cli/launch/options.h"

namespace mccl::cli::launch {

/// How a job ended.
struct Ended {
  /// Exit status: that of the rank that failed first, or 255 if its host was lost; 128 + the signal
  /// number if a signal to this process ended the job; 124 after the timeout; 1 if the output
  /// cannot be written; 128 + SIGPIPE if the reader of the output has closed it.
  int status = 0;
  int signal = 0;  ///< The signal to this process that ended the job; 0 if none did.
  /// True if a rank failed, or its host was lost, while nothing else ended the job.
  bool by_rank = false;
};

/// Runs the job to its end and prints its failures. Starts all ranks again, with new ports, if one
/// fails and a restart is left. Throws Error if a host cannot run its ranks.
/// Must be called while the process has one thread.
Ended run(const Job& job, const RunOptions& options);

}  // namespace mccl::cli::launch
