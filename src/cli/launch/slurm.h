// The hosts of a Slurm allocation.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cli/launch/host.h"

namespace mccl::cli::launch {

/// From SLURM_JOB_NODELIST, and as many slots on each as SLURM_TASKS_PER_NODE says ("4(x2),3").
/// Throws InvalidArgument outside an allocation, or when the two do not match.
std::vector<Host> hosts_of_allocation(const std::map<std::string, std::string>& environment);

/// "4(x2),3" as 4, 4, 3. Throws InvalidArgument.
std::vector<int> expand_tasks_per_node(const std::string& text);

}  // namespace mccl::cli::launch
