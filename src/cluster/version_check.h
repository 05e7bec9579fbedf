// Whether hosts have the same versions of what a job needs, and all of it.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cluster/finding.h"
#include "cluster/host_facts.h"

namespace mccl::cluster {

/// The cure where mccl is missing or differs: no package index has it.
std::string how_to_install(const std::string& host);

/// Versions that differ, and what some hosts have and others lack.
std::vector<Finding> check_versions(std::span<const HostFacts> hosts);

}  // namespace mccl::cluster
