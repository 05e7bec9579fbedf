// Finds the cables and networks that join the hosts, and chooses those that a job should use.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/config/flags.h"
#include "cli/hosts/inquiry.h"
#include "cluster/choice.h"

namespace mccl::cli::config {

struct Discovered {
  cluster::Joined joined;
  cluster::Choice choice;
  std::vector<cluster::Finding> findings;
};

Discovered discover(const ConfigFlags& flags, hosts::Inquiry& inquiry,
                    std::span<const cluster::HostFacts> facts);

/// Returns an address of each host on an interface without a discovered cable. Indexed by host;
/// empty if the host has none.
std::vector<std::string> side_addresses(std::span<const cluster::HostFacts> facts,
                                        const cluster::Joined& joined);

}  // namespace mccl::cli::config
