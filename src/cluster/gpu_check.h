// Checks the connections between the GPUs of a host, as nvidia-smi reports them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cluster/finding.h"
#include "cluster/host_facts.h"

namespace mccl::cluster {

/// Parses a table of nvidia-smi into a square matrix with one row and column per GPU. A cell is a
/// word such as "NV18", "PHB", "OK" or "CNS"; the diagonal is "X". Returns an empty matrix if the
/// row of any of the `count` GPUs is missing or incomplete.
std::vector<std::vector<std::string>> gpu_matrix(std::string_view text, std::size_t count);

std::vector<Finding> check_gpus(const HostFacts& facts);

}  // namespace mccl::cluster
