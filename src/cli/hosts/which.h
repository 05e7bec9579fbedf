// Flags of several commands that specify which hosts to use.
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
  int patience = 60;  ///< Seconds that a host may take to answer or to become ready.
};

/// Adds --hosts, --hostfile, --user, --ssh-arg and --patience. `patience` completes the help text
/// "Seconds that …" of --patience.
void add_flags(CLI::App& app, WhichHosts& which, const std::string& patience);

/// Returns the hosts that the flags specify, or `usual` if they specify none. Throws
/// InvalidArgument if the hostfile or a host is invalid.
launch::Hostfile hosts_of(const WhichHosts& which, std::vector<Host> usual = {Host{}});

/// Returns each host once, with the addresses of all its entries. A host may have several entries,
/// one for each of its ranks.
std::vector<Host> each_once(const std::vector<Host>& hosts);

}  // namespace mccl::cli::hosts
