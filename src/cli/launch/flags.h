// The flags of `mccl launch`, as given.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

namespace mccl::cli::launch {

/// Members are empty or absent where the default applies.
struct Flags {
  std::string hosts;
  std::string hostfile;
  std::string check;
  bool slurm = false;
  std::optional<int> ranks_per_host;
  std::string user;
  std::string backend;
  std::vector<std::string> variables;
  bool on_mccl = false;
  std::vector<std::string> mpi_arguments;
  std::vector<std::string> ssh_arguments;
  std::optional<int> silence;
  int patience = 30;
  std::string directory;
  std::string python;
  int connections_per_address = 1;
  std::optional<int> starting_port;
  int nccl_port = 12345;
  std::string bind_to;
  bool prefix = false;
  bool no_prefix = false;
  bool timestamps = false;
  std::string log_folder;
  std::optional<int> input_rank;
  std::optional<double> timeout;
  double grace = 5;
  bool dry_run = false;
  bool print_environment = false;
  bool print_python = false;
  bool verbose = false;
};

/// Adds the flags to the command, with their help texts.
void add_flags(CLI::App& app, Flags& flags);

}  // namespace mccl::cli::launch
