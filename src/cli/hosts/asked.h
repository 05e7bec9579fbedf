// One host that is queried: its answers, and the findings about a host that does not answer.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/kit/host.h"
#include "cluster/host_facts.h"
#include "cluster/links.h"

namespace mccl::cli::hosts {

struct Asked {
  Host host;
  bool reached = false;
  std::string fault;  ///< The reason why the host was not reached, with advice.
  /// True if the host's mccl is missing, does not run, or is a different build.
  bool needs_install = false;
  cluster::HostFacts facts;
  /// Ports at which the host's probe listens; empty if it does not listen.
  std::vector<std::uint16_t> ports;
  std::uint16_t packet_port = 0;
  bool hears_calls = false;
  std::string probe_fault;  ///< The reason why the host's probe does not listen.
  /// Describes how the host was lost after it had been reached; empty if it was not lost.
  std::string lost;
};

/// Returns the problem that the host was not reached, or that its mccl cannot be used.
cluster::Finding finding_of_unreached(const Asked& asked);
/// Returns a problem for each host that was reached and then lost.
std::vector<cluster::Finding> findings_of_lost(const std::vector<Asked>& asked);
/// Returns a warning for each host whose probe does not listen. `why` describes the consequence.
std::vector<cluster::Finding> findings_of_silent(const std::vector<Asked>& asked, const char* why);

/// Returns a line for the user, which is shown as soon as a host has answered.
std::string summary_of(const cluster::HostFacts& facts);

/// Stores the ports at which the host's probe listens. A host without UDP reports port 0 for
/// packets.
void take_ports(Asked& asked, const nlohmann::json& listening);

/// Parses the two ends of a cable from an answer such as {"at": "c0", "name": 1, "from": "c1"} of
/// host `at`, one of `hosts` hosts.
std::optional<cluster::Heard> hearing_of(const nlohmann::json& said, std::size_t at,
                                         std::size_t hosts);

}  // namespace mccl::cli::hosts
