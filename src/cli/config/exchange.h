// Tries every link of a hostfile.
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

/// Tries each link in both directions, and measures latency and rate.
Exchanged exchange(hosts::Inquiry& inquiry, std::span<const cluster::HostFacts> facts,
                   const cluster::Choice& choice, std::span<const cluster::Addressed> links);

}  // namespace mccl::cli::config
