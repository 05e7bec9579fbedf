// Finds the cables and networks that join the hosts, chooses those that a job should use, and tries
// them.
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

struct Exchanged {
  std::string table;
  std::vector<cluster::Finding> findings;
};

/// Tries each link in both directions, and measures latency and rate.
Exchanged exchange(hosts::Inquiry& inquiry, std::span<const cluster::HostFacts> facts,
                   const cluster::Choice& choice, std::span<const cluster::Addressed> links);

}  // namespace mccl::cli::config
