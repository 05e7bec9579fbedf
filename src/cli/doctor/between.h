// Tries what joins hosts.
#pragma once

#include <string>
#include <vector>

#include "cli/hosts/inquiry.h"
#include "cluster/paths.h"

namespace mccl::cli::doctor {

struct Between {
  cluster::Joined joined;
  std::vector<cluster::Path> paths;
  std::vector<cluster::Finding> findings;
};

/// Of hosts that were all reached. What cannot be tried, as mccl is not there, is a finding.
Between look_between(hosts::Inquiry& inquiry);

}  // namespace mccl::cli::doctor
