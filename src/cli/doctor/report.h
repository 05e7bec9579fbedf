// The output of mccl doctor.
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
  /// Connections between the hosts that were reached; empty if there is only one.
  Between between;
  std::vector<cluster::Finding> findings;
};

/// Returns the report for the user: tables of the hosts, their interfaces and the paths between
/// them, then the findings.
std::string text_of(const Report& report);

/// Returns the report for programs. It has the same contents and further details.
nlohmann::json json_of(const Report& report);

}  // namespace mccl::cli::doctor
