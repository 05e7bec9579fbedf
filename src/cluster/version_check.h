// Whether hosts have the same versions of what a job needs, and all of it.
#pragma once

#include <span>
#include <vector>

#include "cluster/finding.h"
#include "cluster/host_facts.h"

namespace mccl::cluster {

/// Versions that differ, and what some hosts have and others lack.
std::vector<Finding> check_versions(std::span<const HostFacts> hosts);

}  // namespace mccl::cluster
