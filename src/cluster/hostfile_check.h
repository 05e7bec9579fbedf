// Checks that a hostfile fits the hosts that it lists.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cluster/finding.h"
#include "cluster/host_facts.h"

namespace mccl::cluster {

/// `addresses` holds, for each host, the addresses that the hostfile lists. Also checks the
/// addresses that each host's MCCL_IFNAME and MCCL_LISTEN_ADDR select.
std::vector<Finding> check_hostfile(std::span<const HostFacts> hosts,
                                    std::span<const std::vector<std::string>> addresses);

}  // namespace mccl::cluster
