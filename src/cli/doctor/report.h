// What mccl doctor prints.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/hosts/inquiry.h"
#include "cluster/finding.h"

namespace mccl::cli::doctor {

/// For people: tables of the hosts and their interfaces, then what was found.
std::string text_of(const std::vector<hosts::Asked>& asked,
                    const std::vector<cluster::Finding>& findings);

/// For programs: the same, and more.
nlohmann::json json_of(const std::vector<hosts::Asked>& asked,
                       const std::vector<cluster::Finding>& findings);

}  // namespace mccl::cli::doctor
