// The commands that give cables their addresses, and those that undo them.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cluster/subnets.h"

namespace mccl::cluster {

/// One thing to be done on a host.
struct SetupStep {
  int host = 0;
  std::string command;
  std::string undo;
};

/// In the order in which they are to be done; undone in reverse. None for links that keep what they
/// have. Throws Error for a link at an interface that its host has not told of.
std::vector<SetupStep> setup_steps(std::span<const HostFacts> hosts,
                                   std::span<const Addressed> links);

}  // namespace mccl::cluster
