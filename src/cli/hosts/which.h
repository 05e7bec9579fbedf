// Flags that `mccl doctor` and `mccl config` share: which hosts to ask.
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

/// Adds --hosts, --hostfile, --user, --ssh-arg, --patience and --verbose.
void add_flags(CLI::App& app, WhichHosts& which);

/// Returns the hosts that the flags specify, or this machine if they specify none. Throws
/// InvalidArgument.
launch::Hostfile hosts_of(const WhichHosts& which);

/// Returns each host once, with the addresses of all its entries. A host may have several entries,
/// one for each of its ranks.
std::vector<Host> each_once(const std::vector<Host>& hosts);

}  // namespace mccl::cli::hosts
