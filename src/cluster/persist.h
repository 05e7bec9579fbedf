// Commands that make the addresses of cables survive a restart of the host, and commands that undo
// them.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cluster/setup.h"

namespace mccl::cluster {

/// A shell command and the command that undoes it, both without the prefix "sudo".
struct Commands {
  std::string command;
  std::string undo;
};

/// Returns the commands that give an interface an address until the next restart, on a host where
/// NetworkManager runs. They register the address there, because NetworkManager removes unknown
/// addresses when DHCP fails.
Commands network_manager_commands(const std::string& interface, const Network& address);

/// Returns one step for each end of a link whose addresses MCCL has assigned. These are new
/// addresses, and existing ones in /30 networks. The step writes the address into the configuration
/// of the host's network manager. Until the next restart, it changes nothing beyond what
/// setup_steps() has already changed. Its undo restores the configuration of an earlier set-up. On
/// each Mac with such an end in the Thunderbolt Bridge, another step turns the bridge off.
///
/// Throws Error if a host has no known network manager, or if an interface has other addresses that
/// the manager would remove. The message lists these hosts and interfaces.
std::vector<SetupStep> persist_steps(std::span<const HostFacts> hosts,
                                     std::span<const Addressed> links);

}  // namespace mccl::cluster
