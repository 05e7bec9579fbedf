// The flags of `mccl config`, as given.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "cli/hosts/which.h"

namespace mccl::cli::config {

struct ConfigFlags {
  hosts::WhichHosts which;
  bool ignore_unreachable = false;
  std::string over;     ///< Empty: chosen from the connections that are found.
  std::string backend;  ///< Empty: any backend that fits the connections.
  std::string output;
  std::vector<std::string> variables;
  bool auto_setup = false;
  bool sure = false;  ///< True if --yes is given: no question is asked.
  bool persist = false;
  std::string subnet;  ///< Empty: any private network.
  int revert_after_s = 30;
  bool dot = false;
  bool svg = false;
  bool json = false;
};

/// Adds the flags to the command, with their help texts.
void add_flags(CLI::App& app, ConfigFlags& flags);

}  // namespace mccl::cli::config
