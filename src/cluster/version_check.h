// Checks that all hosts have the packages that a job needs, in the same versions.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cluster/finding.h"
#include "cluster/host_facts.h"

namespace mccl::cluster {

/// Returns the instructions to install mccl on the host. Used if mccl is missing or its version
/// differs. They build it from source, since no package index carries mccl.
std::string how_to_install(const std::string& host);

/// Finds versions that differ, and packages that some hosts have and others lack.
std::vector<Finding> check_versions(std::span<const HostFacts> hosts);

}  // namespace mccl::cluster
