// What this host is and has: `mccl probe` tells it to `mccl doctor` and `mccl config`.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "cli/probe/programs.h"
#include "cluster/host_facts.h"

namespace mccl::cli::probe {

struct GatherPlan {
  std::string python = "python3";  ///< Whose packages are listed.
  std::chrono::seconds patience{60};
  /// Ask the programs of macOS. Tests replay their output on other systems.
  bool as_macos = false;
};

/// Changes nothing. Leaves out what the host does not have; ends within the patience. `busy` is
/// told which program runs.
cluster::HostFacts gather(const GatherPlan& plan, std::function<void(const std::string&)> busy);

/// Only the part that tells networks: interfaces, routes and addresses in use.
cluster::HostFacts gather_networks(std::chrono::seconds patience);

/// The parts that differ between systems.
void gather_linux(cluster::HostFacts& facts, const Programs& programs);
void gather_linux_networks(cluster::HostFacts& facts, const Programs& programs);
void gather_macos(cluster::HostFacts& facts, const Programs& programs);
void gather_macos_networks(cluster::HostFacts& facts, const Programs& programs);

}  // namespace mccl::cli::probe
