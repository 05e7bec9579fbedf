// What mccl doctor prints.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/doctor/between.h"
#include "cli/hosts/inquiry.h"
#include "cluster/finding.h"

namespace mccl::cli::doctor {

struct Report {
  std::vector<hosts::Asked> asked;
  Between between;  ///< Of the hosts that were reached; empty for one.
  std::vector<cluster::Finding> findings;
};

/// For people: tables of the hosts, their interfaces and what joins them, then what was found.
std::string text_of(const Report& report);

/// For programs: the same, and more.
nlohmann::json json_of(const Report& report);

}  // namespace mccl::cli::doctor
