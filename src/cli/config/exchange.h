// Tries every link of a hostfile for real.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/hosts/inquiry.h"
#include "cluster/choice.h"

namespace mccl::cli::config {

struct Exchanged {
  std::string table;
  std::vector<cluster::Finding> findings;
};

/// In both directions, with latency and rate.
Exchanged exchange(hosts::Inquiry& inquiry, std::span<const cluster::HostFacts> facts,
                   const cluster::Choice& choice, std::span<const cluster::Addressed> links);

}  // namespace mccl::cli::config
