// Finds the cables and networks that join the hosts, chooses those that a job should use, and tests
// them.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/hosts/inquiry.h"
#include "cluster/choice.h"

namespace mccl::cli::config {

struct ConfigFlags {
  WhichHosts which;
  bool verbose = false;
  bool ignore_unreachable = false;
  std::string over;     ///< Kind of connection to use; empty to choose from all kinds.
  std::string backend;  ///< MLX backend to use; empty for any that the connections support.
  std::string output;
  std::vector<std::string> variables;
  bool auto_setup = false;
  bool sure = false;  ///< True if --yes is given: the user is not asked for consent.
  bool persist = false;
  std::string subnet;  ///< Address range of new networks; empty for the private ranges.
  int revert_after_s = 30;
  bool dot = false;
  bool svg = false;
  bool json = false;
};

struct Discovered {
  cluster::Connectivity joined;
  cluster::TopologyChoice choice;
};

/// Adds the faults of the search to `findings`.
Discovered discover(const ConfigFlags& flags, hosts::Inquiry& inquiry,
                    std::span<const cluster::HostFacts> facts,
                    std::vector<cluster::Finding>& findings);

/// An address of each host at which a cable may be but was not found; empty if there is none.
std::vector<std::string> side_addresses(std::span<const cluster::HostFacts> facts,
                                        const cluster::Connectivity& joined);

/// Tests and measures each link in both directions. Returns a table of the results, and adds the
/// faults to `findings`.
std::string exchange(hosts::Inquiry& inquiry, std::span<const cluster::HostFacts> facts,
                     const cluster::TopologyChoice& choice,
                     std::span<const cluster::Addressed> links,
                     std::vector<cluster::Finding>& findings);

}  // namespace mccl::cli::config
