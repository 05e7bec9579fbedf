// What is wrong with a host by itself.
#pragma once

#include <vector>

#include "cluster/finding.h"
#include "cluster/host_facts.h"

namespace mccl::cluster {

std::vector<Finding> check_machine(const HostFacts& facts);

/// Settings in its environment that MCCL would refuse, or that do not fit the host.
std::vector<Finding> check_settings(const HostFacts& facts);

}  // namespace mccl::cluster
