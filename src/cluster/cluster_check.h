// Finds faults between hosts by comparing their facts.
#pragma once

#include <span>
#include <vector>

#include "cluster/finding.h"
#include "cluster/host_facts.h"

namespace mccl::cluster {

/// Finds hosts that are one machine under two names: the boot ID, the interfaces and their
/// addresses are the same. A container or a network namespace counts as a separate machine.
std::vector<Finding> check_identity(std::span<const HostFacts> hosts);

/// Runs check_identity(), and finds versions, settings and network masks that differ, clocks that
/// are off, and duplicate addresses.
std::vector<Finding> check_cluster(std::span<const HostFacts> hosts);

}  // namespace mccl::cluster
