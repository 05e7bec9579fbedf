// The commands that give addresses to cables, and the commands that undo them.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cluster/subnets.h"

namespace mccl::cluster {

/// One command for a host.
struct SetupStep {
  int host = 0;
  std::string command;  ///< Command to run, with sudo unless the user is root.
  std::string undo;     ///< Command that undoes `command`, with sudo unless the user is root.
};

/// Returns the steps in order of execution; they are undone in reverse order. Links that keep their
/// addresses need none. Throws Error for an interface that its host has not reported.
std::vector<SetupStep> setup_steps(std::span<const HostFacts> hosts,
                                   std::span<const Addressed> links);

}  // namespace mccl::cluster
