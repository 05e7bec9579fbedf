// Runs programs of this host that report facts about it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "cli/hosts/session.h"
#include "cluster/host_facts.h"

namespace mccl::cli::probe {

class Programs {
 public:
  /// All programs together may take until `deadline`. `busy` receives the name of each before it
  /// runs.
  Programs(Clock::time_point deadline, std::function<void(const std::string&)> busy);

  /// Returns standard output of the program, at most 1 MiB. Empty if the program is not installed.
  /// A program that does not end in time is killed and noted in `facts`.
  std::string output_of(cluster::HostFacts& facts, std::vector<std::string> argv) const;
  /// True if the program ends with status 0.
  bool succeeds(cluster::HostFacts& facts, std::vector<std::string> argv) const;

  const hosts::Variables& environment() const { return environment_; }
  /// Returns the path of the program. Empty if it is not installed.
  std::string find(const std::string& program) const;

 private:
  struct Ended {
    std::string output;
    bool good = false;
  };
  Ended run(cluster::HostFacts& facts, std::vector<std::string> argv) const;

  const Clock::time_point deadline_;
  const std::function<void(const std::string&)> busy_;
  const hosts::Variables environment_;
};

}  // namespace mccl::cli::probe
