// A job, from the first connection to the last exit.
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
  std::optional<int> starting_port;       ///< Nothing: free ports here, kUsualPort elsewhere.
  std::optional<int> input_rank;          ///< Nothing: all ranks get what is typed.
  std::chrono::milliseconds grace{5000};  ///< Between SIGTERM and SIGKILL.
  std::optional<std::chrono::milliseconds> timeout;
  std::vector<std::string> ssh_arguments;
  std::chrono::seconds silence{20};  ///< Between this machine and another that counts as lost then.
  std::chrono::seconds patience{30};  ///< For a host to become ready.
  BindTo bind_to = BindTo::share;
  bool bind_to_is_asked = false;  ///< Then it is said where ranks are not bound.
  bool verbose = false;
  bool on_mccl = false;  ///< MLX programs are to run on MCCL: warns where none has.
};

inline constexpr int kUsualPort = 32323;

/// Where the job meets, before any host has been reached: by the names of the hosts.
std::vector<Reached> expected_places(const Job& job);
Ports choose_ports(const Job& job, const std::optional<int>& starting_port,
                   std::span<const Reached> places);

/// Runs the job to its end and tells people of a failure. Returns the exit status: of the rank that
/// failed first, 128 + the signal's number when a signal to this process ended the job, 124 after
/// the timeout, 1 when the output cannot be written, 128 + SIGPIPE when nobody reads it. Throws
/// Error when a host cannot run its ranks. Call it while the process has one thread.
int run(const Job& job, const RunOptions& options);

}  // namespace mccl::cli::launch
