// Finds faults of a single host.
#pragma once

#include <vector>

#include "cluster/finding.h"
#include "cluster/host_facts.h"

namespace mccl::cluster {

/// Returns the faults of the host. The findings in `facts.odd` are the first ones.
std::vector<Finding> check_machine(const HostFacts& facts);

/// Finds settings in the host's environment that MCCL would refuse or that do not fit the host.
std::vector<Finding> check_settings(const HostFacts& facts);

}  // namespace mccl::cluster
