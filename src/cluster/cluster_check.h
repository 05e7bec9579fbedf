// What is wrong between hosts, as far as it can be seen from what each of them says.
#pragma once

#include <span>
#include <vector>

#include "cluster/finding.h"
#include "cluster/host_facts.h"

namespace mccl::cluster {

/// Versions and settings that differ, clocks that are off, addresses that several have.
std::vector<Finding> check_cluster(std::span<const HostFacts> hosts);

}  // namespace mccl::cluster
