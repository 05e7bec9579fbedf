// Gathers facts about this host, which `mccl probe` reports to `mccl doctor` and `mccl config`.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "cli/kit/dialogue.h"
#include "cluster/host_facts.h"

namespace mccl::cli::probe {

/// Runs installed programs that report facts about this host.
class Programs {
 public:
  /// Runs no program after `deadline`. `busy` receives the name of each program before it runs.
  Programs(Clock::time_point deadline, std::function<void(const std::string&)> busy);

  /// The program's standard output, at most the last 1 MiB. Empty if the program is not installed
  /// or the deadline has passed. A program that does not end in time adds a finding to `facts`.
  std::string output_of(cluster::HostFacts& facts, std::vector<std::string> argv) const {
    return run(facts, std::move(argv)).output;
  }
  /// The status is not 0 if the program could not be run.
  Captured run(cluster::HostFacts& facts, std::vector<std::string> argv) const;

  const std::map<std::string, std::string>& environment() const { return environment_; }
  /// Empty if the program is not installed.
  std::string find(const std::string& program) const;

 private:
  const Clock::time_point deadline_;
  const std::function<void(const std::string&)> busy_;
  const std::map<std::string, std::string> environment_;
};

/// Gathers all facts about this host within `patience`, and changes nothing on it. Lists the
/// packages of the interpreter `python`. If `as_macos` is true, uses macOS's programs; tests replay
/// their recorded output on other systems. For `busy`, see Programs.
cluster::HostFacts gather(const std::string& python, std::chrono::seconds patience, bool as_macos,
                          std::function<void(const std::string&)> busy);

/// Gathers only facts about networks: interfaces, routes and addresses in use.
cluster::HostFacts gather_networks(std::chrono::seconds patience);

/// The system-specific parts of gather() and gather_networks().
void gather_linux(cluster::HostFacts& facts, const Programs& programs);
void gather_linux_networks(cluster::HostFacts& facts, const Programs& programs);
void gather_macos(cluster::HostFacts& facts, const Programs& programs);
void gather_macos_networks(cluster::HostFacts& facts, const Programs& programs);

}  // namespace mccl::cli::probe
