// Finds the cables and networks that join the hosts, chooses those that a job should use, and tests
// them.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/hosts/inquiry.h"
#include "cli/hosts/which.h"
#include "cluster/choice.h"

namespace mccl::cli::config {

/// Values of the flags of mccl config.
struct ConfigFlags {
  hosts::WhichHosts which;
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

/// Finds the connections and chooses those of the job. Adds the faults of the search to `findings`.
Discovered discover(const ConfigFlags& flags, hosts::Inquiry& inquiry,
                    std::span<const cluster::HostFacts> facts,
                    std::vector<cluster::Finding>& findings);

/// Returns, for each host, the address of a usable interface that may have a cable, but at which
/// none was found. Empty for a host without such an address.
std::vector<std::string> side_addresses(std::span<const cluster::HostFacts> facts,
                                        const cluster::Connectivity& joined);

/// Tests each link in both directions, and measures its latency and rate. Returns a table of the
/// results, and adds the faults to `findings`.
std::string exchange(hosts::Inquiry& inquiry, std::span<const cluster::HostFacts> facts,
                     const cluster::TopologyChoice& choice,
                     std::span<const cluster::Addressed> links,
                     std::vector<cluster::Finding>& findings);

/// Returns a hostfile that mccl launch and MLX can read, with one line per host. Takes addresses
/// and RDMA devices from `entries`, and all other settings, such as user and port, from `hosts`.
/// `variables` have the form NAME=VALUE.
std::string hostfile_text(std::span<const Host> hosts,
                          std::span<const cluster::HostfileEntry> entries,
                          const std::string& backend, const std::vector<std::string>& variables);

}  // namespace mccl::cli::config
