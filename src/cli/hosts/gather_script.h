// The script by which a host tells of itself: plain text for any POSIX sh, of Linux and of macOS.
#pragma once

#include <string>
#include <vector>

namespace mccl::cli::hosts {

struct GatherPlan {
  std::string token;                     ///< Begins the lines that cut its output into sections.
  std::string python = "python3";        ///< Of which versions of packages are asked.
  std::vector<std::string> places = {};  ///< Where mccl may be, when it is not in PATH.
};

/// Changes nothing on the host. What is not there is left out; what hangs is given up after a
/// while where the host has `timeout`. cluster/read_facts.h understands what it prints.
std::string gather_script(const GatherPlan& plan);

}  // namespace mccl::cli::hosts
