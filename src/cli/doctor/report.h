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
  Between between;  ///< Between the hosts that were reached; empty for one.
  std::vector<cluster::Finding> findings;
};

/// Returns the report for the user: tables of the hosts, their interfaces and what joins them, then
/// the findings.
std::string text_of(const Report& report);

/// Returns the report for programs: the same contents, and more.
nlohmann::json json_of(const Report& report);

}  // namespace mccl::cli::doctor
