// Commands that change the network set-up of hosts, and commands that undo them.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/subnets.h"

namespace mccl::cluster {

/// Returns a shell command for Linux or macOS, without sudo. `setting` is "up", "down" or
/// "mtu 1500".
std::string command_to_set(System system, const std::string& interface, std::string_view setting);
/// Returns the command that removes an address, such as "10.0.0.1/24" or "fd00::1/64".
std::string command_to_remove(System system, const std::string& interface,
                              const std::string& address);

/// A command for one host, and the command that undoes it. Both begin with sudo if the user of the
/// host is not root.
struct SetupStep {
  int host = 0;
  std::string command;
  std::string undo;
};

/// Returns a step with these commands. If the host's user is not root, adds sudo to both.
SetupStep step_of(int host, const HostFacts& facts, const std::string& command,
                  const std::string& undo);

/// Returns the steps that give the cables their addresses, in order of execution. They must be
/// undone in reverse order. Links that keep their addresses need no steps. Throws Error for an
/// interface that its host has not reported.
std::vector<SetupStep> setup_steps(Hosts hosts, std::span<const Addressed> links);

/// Returns one step for each end of every link whose addresses MCCL has chosen: new addresses or,
/// from an earlier set-up, existing addresses in a /30 network. Each step writes the address into
/// the configuration of the host's network manager, which applies it at every restart. Until the
/// next restart, the step changes nothing beyond what setup_steps() has changed. `undo` restores
/// the configuration of an earlier set-up. If the interface of such an end is a member of a Mac's
/// Thunderbolt Bridge, another step turns the bridge off.
///
/// Throws Error if a host has no known network manager, or if an interface has other addresses that
/// the manager would remove. The message lists these hosts and interfaces.
std::vector<SetupStep> persist_steps(Hosts hosts, std::span<const Addressed> links);

}  // namespace mccl::cluster
