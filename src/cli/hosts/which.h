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

/// Each once, with the addresses of all places where it stands: of a host with several entries each
/// may be a rank.
std::vector<launch::Host> each_once(const std::vector<launch::Host>& hosts);

}  // namespace mccl::cli::hosts
