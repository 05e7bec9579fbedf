// The options of `mccl launch` that do not describe the job itself.
#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "cli/launch/binding.h"
#include "cli/launch/console.h"
#include "cli/launch/job.h"

namespace mccl::cli::launch {

/// Default of RunOptions::patience, in seconds.
inline constexpr int kUsualPatience = 30;

struct RunOptions {
  std::string command = "mccl launch";  ///< Begins each message of the launcher.
  Variables inherited;                  ///< The launcher's own environment.
  ConsoleOptions console;
  /// True if ranks read nothing, and write to the launcher's own standard output and error. Then
  /// the launcher reports only ranks that were killed, because the others report their own
  /// failures. Only for jobs whose ranks all run on this machine.
  bool inherits_streams = false;
  /// First port of MLX's ring; MCCL_ROOT and MASTER_PORT use the two ports below it. Unset: free
  /// ports if all ranks run here, otherwise the first free block of ports from kUsualPort up.
  std::optional<int> starting_port;
  std::optional<int> input_rank;                     ///< Unset: all ranks get standard input.
  std::chrono::milliseconds grace{5000};             ///< Time between SIGTERM and SIGKILL.
  std::optional<std::chrono::milliseconds> timeout;  ///< Limits all starts together.
  /// Maximum number of times that all ranks are started again after a failure.
  int max_restarts = 0;
  std::vector<std::string> ssh_arguments;
  std::chrono::seconds silence{20};  ///< Time without messages after which a host counts as lost.
  int patience = kUsualPatience;     ///< Seconds that a host may take to become ready.
  BindTo bind_to = BindTo::share;
  /// True if --bind-to was given. Ranks that cannot be bound are then reported.
  bool bind_to_is_asked = false;
  /// True if --mlx was given. Hosts where MLX did not use MCCL are then reported.
  bool on_mccl = false;
};

/// The flags as given. Members are empty or absent where the default applies.
struct Flags {
  Request request;
  RunOptions run;
  std::string hosts;
  std::string hostfile;
  std::string check;
  bool slurm = false;
  std::string user;
  std::string backend;
  std::vector<std::string> variables;
  std::vector<std::string> mpi_arguments;
  std::optional<int> silence;
  std::string bind_to;
  bool prefix = false;
  bool no_prefix = false;
  std::optional<double> timeout;
  double grace = 5;
  bool dry_run = false;
  bool print_environment = false;
  bool print_python = false;
};

/// Adds the flags to the command, with their help texts.
void add_flags(CLI::App& app, Flags& flags);

}  // namespace mccl::cli::launch
