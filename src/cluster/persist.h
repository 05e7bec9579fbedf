// The commands that keep the addresses of cables when a host restarts, and those that undo them.
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

/// Gives an interface an address until the next restart, on a host where NetworkManager runs.
/// NetworkManager removes addresses that it does not know once DHCP has failed.
Commands network_manager_commands(const std::string& interface, const Network& address);

/// Returns one step for each end of a link whose address MCCL has given: the new addresses, and the
/// existing ones in /30 networks. On each Mac with such an end in the Thunderbolt Bridge, another
/// step turns the bridge off. A step writes the address into the configuration of the host's
/// network manager. It takes effect at the next restart, or changes only what the set-up has
/// already changed. Its undo restores the configuration of an earlier set-up.
///
/// Throws Error, which names the hosts, if a host has no known network manager. Also throws if an
/// interface has other addresses that the manager would remove.
std::vector<SetupStep> persist_steps(std::span<const HostFacts> hosts,
                                     std::span<const Addressed> links);

}  // namespace mccl::cluster
