// Gathers facts about this host, which `mccl probe` reports to `mccl doctor` and `mccl config`.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "cli/probe/programs.h"
#include "cluster/host_facts.h"

namespace mccl::cli::probe {

struct GatherPlan {
  std::string python = "python3";  ///< Its packages are listed.
  std::chrono::seconds patience{60};
  /// Use the programs of macOS. Tests replay their output on other systems.
  bool as_macos = false;
};

/// Changes nothing on this host. Omits what the host does not have. Returns within the patience.
/// `busy` receives the name of each program before it runs.
cluster::HostFacts gather(const GatherPlan& plan, std::function<void(const std::string&)> busy);

/// Gathers only facts about networks: interfaces, routes and addresses in use.
cluster::HostFacts gather_networks(std::chrono::seconds patience);

/// The parts that differ between systems.
void gather_linux(cluster::HostFacts& facts, const Programs& programs);
void gather_linux_networks(cluster::HostFacts& facts, const Programs& programs);
void gather_macos(cluster::HostFacts& facts, const Programs& programs);
void gather_macos_networks(cluster::HostFacts& facts, const Programs& programs);

}  // namespace mccl::cli::probe
