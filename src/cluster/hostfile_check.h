// Whether a hostfile fits the hosts that it names.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cluster/finding.h"
#include "cluster/host_facts.h"

namespace mccl::cluster {

/// `addresses` are those that the hostfile gives each host.
std::vector<Finding> check_hostfile(std::span<const HostFacts> hosts,
                                    std::span<const std::vector<std::string>> addresses);

}  // namespace mccl::cluster
