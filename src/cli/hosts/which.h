// Which hosts a command asks: flags that `mccl doctor` and `mccl config` have in common.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "cli/launch/hostfile.h"

namespace mccl::cli::hosts {

struct WhichHosts {
  std::string hosts;
  std::string hostfile;
  std::string user;
  std::vector<std::string> ssh_arguments;
  int patience = 60;
  bool verbose = false;
};

/// --hosts, --hostfile, --user, --ssh-arg, --patience and --verbose.
void add_flags(CLI::App& app, WhichHosts& which);

/// This machine where none are named. Throws InvalidArgument.
launch::Hostfile hosts_of(const WhichHosts& which);

}  // namespace mccl::cli::hosts
