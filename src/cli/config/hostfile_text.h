// Writes hostfiles that mccl launch and MLX can read.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/launch/hostfile.h"
#include "cluster/choice.h"

namespace mccl::cli::config {

/// Returns a hostfile with each host on a line of its own. Keeps the other settings of `hosts`,
/// such as user and port. `variables` have the form NAME=VALUE.
std::string hostfile_text(std::span<const Host> hosts, std::span<const cluster::Entry> entries,
                          const std::string& backend, const std::vector<std::string>& variables);

}  // namespace mccl::cli::config
