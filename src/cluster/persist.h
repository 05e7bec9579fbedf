// The commands that keep the addresses of cables when a host restarts, and those that undo them.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cluster/setup.h"

namespace mccl::cluster {

/// A command and what undoes it, without sudo.
struct Commands {
  std::string command;
  std::string undo;
};

/// Gives an interface an address until the next restart, on a host where NetworkManager runs.
/// NetworkManager removes addresses that it does not know once DHCP has failed.
Commands network_manager_commands(const std::string& interface, const Network& address);

/// One step for each end of a link that has an address given by MCCL: those that are new, and those
/// of networks of four addresses (/30) that were there already. Each step tells the host's own
/// network manager. Steps take effect at the next start of the host, or change nothing that the
/// set-up has not changed already. Their undo brings back what an earlier set-up had kept. Throws Error, which names the hosts, where a host has no manager
/// that is known, and where an interface has other addresses, which the manager would take away.
std::vector<SetupStep> persist_steps(std::span<const HostFacts> hosts,
                                     std::span<const Addressed> links);

}  // namespace mccl::cluster
