// Runs a job, from the first connection to the last exit.
#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/launch/binding.h"
#include "cli/launch/console.h"
#include "cli/launch/job.h"

namespace mccl::cli::launch {

struct RunOptions {
  Variables inherited;  ///< The launcher's own environment.
  ConsoleOptions console;
  /// First port of MLX's ring; MCCL_ROOT and MASTER_PORT use the two ports below it. Unset: free
  /// ports if all ranks run here, otherwise the first free block of ports from kUsualPort up.
  std::optional<int> starting_port;
  std::optional<int> input_rank;          ///< Unset: all ranks get standard input.
  std::chrono::milliseconds grace{5000};  ///< Time between SIGTERM and SIGKILL.
  std::optional<std::chrono::milliseconds> timeout;
  std::vector<std::string> ssh_arguments;
  std::chrono::seconds silence{20};   ///< Time without messages after which a host counts as lost.
  std::chrono::seconds patience{30};  ///< Time that a host may take to become ready.
  BindTo bind_to = BindTo::share;
  /// True if --bind-to was given. Ranks that cannot be bound are then reported.
  bool bind_to_is_asked = false;
  bool verbose = false;
  /// True if --mlx was given. Hosts where MLX did not use MCCL are then reported.
  bool on_mccl = false;
};

inline constexpr int kUsualPort = 32323;

/// Returns placeholders for the addresses at which the ranks will meet, for --print-env and
/// --dry-run, which contact no host. These are the names of the hosts, or 127.0.0.1 if all ranks
/// run on this machine.
std::vector<Reached> expected_places(const Job& job);
Ports choose_ports(const Job& job, const std::optional<int>& starting_port,
                   std::span<const Reached> places);

/// Runs the job to its end and prints its failures. Returns the exit status: that of the rank that
/// failed first, or 255 if its host was lost; 128 + the signal number if a signal to this process
/// ended the job; 124 after the timeout; 1 if the output cannot be written; 128 + SIGPIPE if the
/// reader of the output has closed it. Throws Error if a host cannot run its ranks. Must be called
/// while the process has one thread.
int run(const Job& job, const RunOptions& options);

}  // namespace mccl::cli::launch
