// Runs a job: connects to its hosts, starts its ranks and waits until all of them have ended.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "cli/launch/console.h"
#include "cli/launch/job.h"
#include "cli/launch/resources.h"

namespace mccl::cli::launch {

/// Default of RunOptions::patience, in seconds.
inline constexpr int kUsualPatience = 30;

struct RunOptions {
  std::string command = "mccl launch";  ///< Prefix of each message of the launcher.
  Variables inherited;                  ///< The launcher's own environment.
  ConsoleOptions console;
  /// True if ranks get no input, and write directly to the launcher's standard output and error.
  /// The launcher then reports only ranks that were killed, because other failed ranks print their
  /// error themselves. Only for jobs whose ranks all run on this machine.
  bool inherits_streams = false;
  /// See ports_from(). Unset: free ports if all ranks run here, otherwise the first free block of
  /// ports from kUsualPort up.
  std::optional<int> starting_port;
  std::optional<int> input_rank;          ///< The rank that gets standard input. Unset: all ranks.
  std::chrono::milliseconds grace{5000};  ///< Time between SIGTERM and SIGKILL.
  std::optional<std::chrono::milliseconds> timeout;  ///< Time limit of the job and its restarts.
  /// How often all ranks are started again after a failure, or, with `restarts_failed_only`, each.
  int max_restarts = 0;
  /// True if only the failed ranks start again, while the others continue.
  bool restarts_failed_only = false;
  std::vector<std::string> ssh_arguments;
  std::chrono::seconds silence{20};  ///< Time without messages after which a host counts as lost.
  int patience = kUsualPatience;     ///< Seconds that a host may take to become ready.
  BindTo bind_to = BindTo::share;
  /// True if --bind-to was given. Ranks that cannot be bound are then reported.
  bool bind_to_is_asked = false;
  /// True if --mlx was given. Hosts where MLX did not use MCCL are then reported.
  bool on_mccl = false;
};

struct Ended {
  int status = 0;  ///< Exit status, as the help of mccl launch describes it.
  int signal = 0;  ///< The signal to this process that ended the job; 0 if none did.
  /// True if a failed rank or a lost host ended the job, and no signal, timeout or lost output.
  bool by_rank = false;
};

/// Runs the job to its end, with its restarts, and prints its failures. Throws Error if a host
/// cannot run its ranks. Must be called while the process has one thread, because it forks.
Ended run(const Job& job, const RunOptions& options);

}  // namespace mccl::cli::launch
