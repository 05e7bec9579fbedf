// Writes hostfiles that mccl launch, and MLX, read.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/launch/hostfile.h"
#include "cluster/choice.h"

namespace mccl::cli::config {

/// Keeps the settings of `hosts`. `variables` are NAME=VALUE. Each host is on a line of its own.
std::string hostfile_text(std::span<const launch::Host> hosts,
                          std::span<const cluster::Entry> entries, const std::string& backend,
                          const std::vector<std::string>& variables);

}  // namespace mccl::cli::config
