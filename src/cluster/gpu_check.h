// What joins the GPUs of a host, as nvidia-smi tells of it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cluster/finding.h"
#include "cluster/host_facts.h"

namespace mccl::cluster {

/// A row for each GPU with a cell for each: "NV18", "PHB", "OK", "CNS"; "X" is itself. Empty when
/// the text has no row, or half a row, for one of the `count`.
std::vector<std::vector<std::string>> gpu_matrix(std::string_view text, std::size_t count);

std::vector<Finding> check_gpus(const HostFacts& facts);

}  // namespace mccl::cluster
