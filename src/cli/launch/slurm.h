// The hosts of a Slurm allocation.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cli/launch/host.h"

namespace mccl::cli::launch {

/// Returns the hosts of SLURM_JOB_NODELIST, with the slots that SLURM_TASKS_PER_NODE gives
/// ("4(x2),3"). Throws InvalidArgument outside an allocation, or if the two do not match.
std::vector<Host> hosts_of_allocation(const std::map<std::string, std::string>& environment);

/// Expands "4(x2),3" to 4, 4, 3. Throws InvalidArgument.
std::vector<int> expand_tasks_per_node(const std::string& text);

}  // namespace mccl::cli::launch
