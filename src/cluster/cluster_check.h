// What is wrong between hosts, as far as it can be seen from what each of them says.
#pragma once

#include <span>
#include <vector>

#include "cluster/finding.h"
#include "cluster/host_facts.h"

namespace mccl::cluster {

/// Hosts that are one machine under two names: they were started at the same time, and have the
/// same interfaces with the same addresses. A container, or a namespace, is a machine of its own.
std::vector<Finding> check_identity(std::span<const HostFacts> hosts);

/// Versions and settings that differ, clocks that are off, addresses that several have.
std::vector<Finding> check_cluster(std::span<const HostFacts> hosts);

}  // namespace mccl::cluster
