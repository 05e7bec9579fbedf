// Shell commands for Linux and macOS, without sudo.
#pragma once

#include <string>

#include "cluster/host_facts.h"

namespace mccl::cluster {

/// Returns the command that brings the interface up or down.
std::string command_to_set(System system, const std::string& interface, bool up);
std::string command_to_set_mtu(System system, const std::string& interface, int mtu);
/// Returns the command that removes the address, such as "10.0.0.1/24" or "fd00::1/64".
std::string command_to_remove(System system, const std::string& interface,
                              const std::string& address);
/// Returns the command that shows the interface's state.
std::string command_to_show(System system, const std::string& interface);
/// Returns the command that shows the interface's counts of packets and errors.
std::string command_to_count(System system, const std::string& interface);

}  // namespace mccl::cluster
