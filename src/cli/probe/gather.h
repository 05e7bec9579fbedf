// Gathers facts about this host, which `mccl probe` reports to `mccl doctor` and `mccl config`.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "cli/probe/programs.h"
#include "cluster/host_facts.h"

namespace mccl::cli::probe {

struct GatherPlan {
  std::string python = "python3";  ///< The Python whose packages are listed.
  std::chrono::seconds patience{60};
  /// True if the programs of macOS are used. Tests replay their output on other systems.
  bool as_macos = false;
};

/// Gathers all facts about this host, and changes nothing on it. Omits facts that do not apply.
/// Returns within the patience. `busy` receives the name of each program before it runs.
cluster::HostFacts gather(const GatherPlan& plan, std::function<void(const std::string&)> busy);

/// Gathers only facts about networks: interfaces, routes and addresses in use.
cluster::HostFacts gather_networks(std::chrono::seconds patience);

/// The system-specific parts of gather() and gather_networks().
void gather_linux(cluster::HostFacts& facts, const Programs& programs);
void gather_linux_networks(cluster::HostFacts& facts, const Programs& programs);
void gather_macos(cluster::HostFacts& facts, const Programs& programs);
void gather_macos_networks(cluster::HostFacts& facts, const Programs& programs);

}  // namespace mccl::cli::probe
