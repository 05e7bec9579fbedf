// What hosts' calls through their cables tell of firewalls.
#pragma once

#include <span>
#include <vector>

#include "cluster/finding.h"
#include "cluster/links.h"

namespace mccl::cluster {

/// Hosts that can hear no calls, and those that do not let in what answers their own.
std::vector<Finding> check_calls(std::span<const HostFacts> hosts, const Calls& calls);

/// Ends whose cable leads somewhere, and where no call was heard: a firewall may have dropped it.
/// For when cables are missing. No finding where there is no such end.
std::vector<Finding> check_silence(std::span<const HostFacts> hosts, const Calls& calls);

}  // namespace mccl::cluster
