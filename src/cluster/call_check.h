// Detects firewalls from the results of the calls that hosts send through their cables.
#pragma once

#include <span>
#include <vector>

#include "cluster/finding.h"
#include "cluster/links.h"

namespace mccl::cluster {

/// Finds hosts that cannot receive calls, and hosts that do not receive the answers to their own
/// calls.
std::vector<Finding> check_calls(std::span<const HostFacts> hosts, const Calls& calls);

/// Finds interfaces with a carrier where no call was heard, because a firewall may have dropped it.
/// Used when cables appear to be missing. Returns at most one finding, which names all of them.
std::vector<Finding> check_silence(std::span<const HostFacts> hosts, const Calls& calls);

}  // namespace mccl::cluster
